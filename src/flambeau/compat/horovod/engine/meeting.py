"""Rendezvous: all ranks find rank 0 and connect to its controller."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

import torch.distributed as dist

from flambeau.clusters.attached.launchers import detected, own_address
from flambeau.clusters.attached.meeting_place import MeetingPlace
from flambeau.clusters.interfaces import address_of, host_of, local_address
from flambeau.clusters.machine import machine_identity
from flambeau.compat.horovod.engine.engine import Engine, Place
from flambeau.compat.horovod.engine.environment import (
    HorovodSettings,
    interface,
    own_ranks,
    without_address,
)
from flambeau.compat.horovod.negotiation.controller import Controller
from flambeau.compat.horovod.negotiation.messages import (
    CODEC,
    MAX_BYTES,
    Begin,
    Hello,
    Refused,
    Said,
)
from flambeau.config import Attached
from flambeau.errors import ConfigError
from flambeau.messaging import Client, Server, new_secret
from flambeau.version import __version__

LOOK_SECONDS = 0.05
#: A rank that receives no answer for this long looks for rank 0 again.
SILENCE_SECONDS = 60.0
#: All calls of `init` in a job use one meeting place: a restarted rank has not counted them.
CALL = "horovod"
_STORE_KEY = "flambeau.horovod"


class _Finding(Protocol):
    """A place where rank 0 listens and the other ranks find it."""

    def open(self) -> Server[Said]:
        """Listen, as rank 0."""

    def find(self) -> tuple[str, bytes] | None:
        """Return the address and secret of rank 0; None if they are not there yet."""

    def remove(self) -> None:
        """Remove address and secret, once all ranks have arrived."""


@final
class _ByLauncher:
    """Rendezvous at the meeting place of `fb.Attached`: a file, or a known address."""

    def __init__(self, place: MeetingPlace, host: str) -> None:
        self._place, self._host = place, host
        self.find, self.remove = place.find, place.remove

    def open(self) -> Server[Said]:
        return self._place.listen(self._host, CODEC, MAX_BYTES)


@final
class _ByStore:
    """Rendezvous by the torch.distributed store, which the roles of `fb.run` authenticate."""

    def __init__(self, number: int, host: str) -> None:
        self._key, self._host = f"{_STORE_KEY}.{number}", host
        self._store = dist.distributed_c10d._get_default_store()

    def open(self) -> Server[Said]:
        secret = new_secret()
        server: Server[Said] = Server(CODEC, secret, self._host, max_bytes=MAX_BYTES)
        self._store.set(self._key, f"{server.address} {secret.hex()}")
        return server

    def find(self) -> tuple[str, bytes] | None:
        if not self._store.check([self._key]):
            return None
        address, secret = self._store.get(self._key).decode().split()
        return address, bytes.fromhex(secret)

    def remove(self) -> None:
        self._store.delete_key(self._key)


@dataclass
class _Counter:
    """The number of times that this process has met the others through the store."""

    meetings: int = 0


_counter = _Counter()


def met(settings: HorovodSettings) -> Engine:
    """Wait until all ranks have arrived, and return this rank's engine."""
    if dist.is_initialized() and without_address():
        _counter.meetings += 1
        host = address_of(interface() or "lo") or "127.0.0.1"
        finding: _Finding = _ByStore(_counter.meetings, host)
        return _arrive(dist.get_rank(), dist.get_world_size(), finding, settings)
    identity = detected()
    if identity is None:
        return Engine(Place(0, 1), settings)
    attached = Attached()
    host = own_address(attached, identity)
    finding = _ByLauncher(MeetingPlace(attached, identity, CALL), host)
    return _arrive(identity.rank, identity.size, finding, settings)


def _arrive(rank: int, size: int, finding: _Finding, settings: HorovodSettings) -> Engine:
    if size == 1:
        return Engine(Place(0, 1), settings)
    controller = None
    engines: list[Engine] = []
    if rank == 0:
        controller = Controller(
            finding.open(),
            size,
            cache_capacity=settings.cache_capacity,
            stall_seconds=settings.stall_seconds,
            on_met=finding.remove,
            is_busy=lambda: bool(engines) and engines[0].executor.busy,
        )
    try:
        client, begin = _welcomed(rank, size, finding.find, settings.start_seconds)
    except BaseException:
        if controller is not None:
            controller.join(0)
        raise
    engine = Engine(_place(rank, begin.machines), settings)
    engines.append(engine)
    engine.connect(client, local_address(host_of(client.address)), controller)
    engine.meet()
    return engine


def _welcomed(
    rank: int, size: int, find: Callable[[], tuple[str, bytes] | None], seconds: float
) -> tuple[Client[Said], Begin]:
    """Wait for all ranks; return a connection to the controller, and its answer."""
    deadline = time.monotonic() + seconds
    hello = Hello(rank, size, machine_identity(), __version__)
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            address, secret = found
            client = Client(
                CODEC, secret, address, max_bytes=MAX_BYTES, silence_seconds=SILENCE_SECONDS
            )
            client.send(hello)
            begin = _answer(client, deadline)
            if begin is not None:
                return client, begin
            client.close(linger=0)
        time.sleep(LOOK_SECONDS)
    raise ConfigError(
        f"hvd.init(): rank {rank} of {size} on {socket.gethostname()} did not meet all others "
        f"within {seconds:.0f} s. Every rank must call hvd.init() and reach rank 0; a longer wait "
        "is HOROVOD_START_TIMEOUT"
    )


def _answer(client: Client[Said], deadline: float) -> Begin | None:
    """Return the controller's answer; None if the rank has to try again."""
    while client.problem is None and time.monotonic() < deadline:
        received = client.receive(LOOK_SECONDS)
        if received is None:
            continue
        if isinstance(received[0], Begin):
            return received[0]
        if isinstance(received[0], Refused):
            if received[0].error:
                raise ConfigError(f"hvd.init(): {received[0].error}")
            return None
    return None


def _place(rank: int, machines: list[str]) -> Place:
    """Return the position of a rank; local ranks follow ranks unless the launcher sets them."""
    mine = [each for each, machine in enumerate(machines) if machine == machines[rank]]
    hosts = list(dict.fromkeys(machines))
    counts = {machines.count(host) for host in hosts}
    local_rank = mine.index(rank)
    across = [host for host in hosts if machines.count(host) > local_rank]
    found = {
        "local_rank": local_rank,
        "local_size": len(mine),
        "cross_rank": across.index(machines[rank]),
        "cross_size": len(across),
    }
    found.update(own_ranks())
    return Place(rank, len(machines), **found, homogeneous=len(counts) == 1)
