"""The rendezvous of a launcher's processes: rank 0 gathers the others, which join its call."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import msgspec

from flambeau.clusters.agent_process import AgentOrder
from flambeau.clusters.attached.launchers import Identity, own_address
from flambeau.clusters.attached.meeting_messages import (
    CODEC,
    MAX_BYTES,
    Arrived,
    Farewell,
    Order,
    Over,
    Ping,
    Said,
    Welcome,
)
from flambeau.clusters.attached.meeting_place import MeetingPlace
from flambeau.clusters.base import Launch
from flambeau.config import Attached
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError, MessagingError
from flambeau.messaging import Client

#: Interval at which the others look for rank 0, and how long they wait for its reply.
LOOK_SECONDS = 0.05
ANSWER_SECONDS = 5.0
#: How long rank 0 waits for the others to acknowledge the outcome of the call.
FAREWELL_SECONDS = 10.0
#: After this time, rank 0 reports which ranks are missing.
QUIET_SECONDS = 10.0
SILENCE_SECONDS = 120.0


@final
class Meeting:
    """Rank 0's side of a call: its connections to the other processes."""

    def __init__(self, settings: Attached, identity: Identity, call: int) -> None:
        self._place = MeetingPlace(settings, identity, call)
        self.identity = identity
        self.host = own_address(settings, identity)
        self._server = self._place.open(self.host)
        self._peers: dict[int, bytes] = {}
        self.arrived: dict[int, Arrived] = {}

    def gather(
        self, own: Arrived, seconds: float, on_wait: Callable[[str], None] = lambda text: None
    ) -> None:
        """Wait until all processes have arrived; raise an error if they were called differently.

        If that takes long, `on_wait` is called once with a message that names the missing ranks.
        """
        self.arrived[own.rank] = own
        began = time.monotonic()
        deadline, patient = began + seconds, True
        try:
            while len(self.arrived) < own.size:
                envelope = self._server.receive(0.2)
                if envelope is not None and isinstance(envelope.message, Arrived):
                    self._welcome(own, envelope.message, envelope.peer)
                if time.monotonic() > deadline:
                    raise ConfigError(self._missing(own, seconds))
                if patient and time.monotonic() > began + QUIET_SECONDS:
                    patient = False
                    on_wait(f"{own.call}: waiting for {self._absent(own)}, up to {seconds:g} s")
        finally:
            self._place.remove()
        _require_same(own, [self.arrived[rank] for rank in range(1, own.size)])

    def _welcome(self, own: Arrived, other: Arrived, peer: bytes) -> None:
        self._peers[other.rank], self.arrived[other.rank] = peer, other
        self._server.send(peer, Welcome())
        if other.version != own.version:
            raise ConfigError(
                f"Flambeau {other.version} is installed on {other.node} (rank {other.rank}), and "
                f"{own.version} on {own.node} (rank 0): install the same version"
            )
        if other.size != own.size:
            raise ConfigError(
                f"rank {other.rank} says that there are {other.size} processes, and rank 0 "
                f"{own.size}: give all of them the same size="
            )

    def _missing(self, own: Arrived, seconds: float) -> str:
        return (
            f"{own.call}: {self._absent(own)} did not come within {seconds:g} s. Every "
            f"process must make the same calls, and reach rank 0 at {self.host} (host=); "
            "a longer wait is start_timeout="
        )

    def _absent(self, own: Arrived) -> str:
        missing = [rank for rank in range(own.size) if rank not in self.arrived]
        names = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        return f"{number_of(len(missing), 'rank')} of {own.size} ({names})"

    # Methods for the cluster

    def node(self, rank: int) -> str:
        """Return the name of the host that a rank is on."""
        return self.arrived[rank].node

    def order(self, rank: int, launch: Launch) -> None:
        """Send a process the order to run an agent."""
        data = msgspec.msgpack.encode(AgentOrder(launch, rank))
        self._server.send(self._peers[rank], Order(), [data])

    def gone(self) -> list[int]:
        """Return the ranks whose connection has ended since the last call."""
        lost = [rank for rank, peer in self._peers.items() if not self._server.send(peer, Ping())]
        for rank in lost:
            del self._peers[rank]
        return lost

    def end(self, value: bytes, *, failed: bool) -> None:
        """Send the others the outcome of the call, and wait for their acknowledgements."""
        waiting = {
            rank
            for rank, peer in self._peers.items()
            if self._server.send(peer, Over(failed), [value])
        }
        deadline = time.monotonic() + FAREWELL_SECONDS
        while waiting and time.monotonic() < deadline:
            envelope = self._server.receive(0.2)
            if envelope is None:
                waiting.intersection_update(set(waiting) - set(self.gone()))
            elif isinstance(envelope.message, Farewell):
                waiting.discard(envelope.message.rank)
            elif isinstance(envelope.message, Arrived):  # too late, but it needs the outcome
                self._server.send(envelope.peer, Over(failed), [value])

    def close(self) -> None:
        """Stop listening."""
        self._place.remove()
        self._server.close()


def _require_same(own: Arrived, others: Sequence[Arrived]) -> None:
    """Raise an error unless all processes make the same call with the same settings."""
    for other in others:
        if other.call != own.call:
            raise ConfigError(
                f"rank {other.rank} on {other.node} calls {other.call} where rank 0 calls "
                f"{own.call}: every process must make the same calls in the same order"
            )
        for name in sorted(own.arguments.keys() & other.arguments.keys()):
            theirs, ours = other.arguments[name], own.arguments[name]
            if theirs != ours:
                raise ConfigError(
                    f"{name}= of {own.call} differs: {theirs} in rank {other.rank} on "
                    f"{other.node}, {ours} in rank 0 on {own.node}; give all processes the same"
                )


@final
class Participation:
    """The side of a call in a process other than rank 0."""

    def __init__(self, settings: Attached, identity: Identity, call: int) -> None:
        self._place = MeetingPlace(settings, identity, call)
        self._rank = identity.rank
        self._client: Client[Said] | None = None

    def arrive(self, own: Arrived, seconds: float) -> None:
        """Report this process to rank 0, retrying until rank 0 listens or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self._place.find()
            if found is not None and self._is_welcome(own, *found):
                return
            time.sleep(LOOK_SECONDS)
        self.close()
        raise self._place.not_found(seconds)

    def _is_welcome(self, own: Arrived, address: str, secret: bytes) -> bool:
        """Connect to an address; return whether rank 0 replies there."""
        self.close()
        self._client = Client(
            CODEC, secret, address, max_bytes=MAX_BYTES, silence_seconds=SILENCE_SECONDS
        )
        self._client.send(own)
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline and self._client.problem is None:
            received = self._client.receive(LOOK_SECONDS)
            if received is not None and isinstance(received[0], Welcome):
                return True
        self._client.close(linger=0)
        return False

    def next(self) -> tuple[Order | Over, Any]:
        """Wait for the next order of rank 0, or the end of the call; return it and its payload."""
        assert self._client is not None
        while True:
            received = self._client.receive(0.2)
            if received is not None and isinstance(received[0], Order | Over):
                return received[0], received[1][0]
            if received is None and self._client.problem is not None:
                raise MessagingError(f"rank 0 is gone: {self._client.problem}")

    def farewell(self) -> None:
        """Acknowledge to rank 0 that this process has received the outcome of the call."""
        assert self._client is not None
        self._client.send(Farewell(self._rank))

    def outlive_driver(self, seconds: float) -> None:
        """Wait until rank 0 has exited: a launcher ends all processes after the first failure."""
        deadline = time.monotonic() + seconds
        client = self._client
        while client is not None and client.problem is None and time.monotonic() < deadline:
            client.receive(0.1)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


def shown(value: Any) -> str:
    """Return a short text to compare a setting by: a long one is cut, and its digest added."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(text) <= 80:
        return text
    return f"{text[:60]}... ({hashlib.sha256(text.encode()).hexdigest()[:12]})"
