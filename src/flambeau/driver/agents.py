"""The agents of a job: who has come, and with which rows."""

import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, final

from flambeau.clusters.base import AgentsLost, Cluster, Launch
from flambeau.clusters.file_transfer.carrier import Carrier, Send
from flambeau.coordination.failures import Cause
from flambeau.coordination.file_messages import AgentJoined, FilePart, FilesSent, Spooled
from flambeau.coordination.protocol import Messages, StartRoles
from flambeau.coordination.roles import RoleSpec
from flambeau.messaging import Server

TICK_SECONDS = 0.1


@final
class Agents:
    """All agents of a cluster, which may be started again when some have ended.

    To those that do not see the run's files, the `carrier` brings them.
    """

    def __init__(
        self, cluster: Cluster, server: Server[Messages], carrier: Carrier | None = None
    ) -> None:
        self._cluster, self._server, self._carrier = cluster, server, carrier
        self.peers: dict[int, bytes] = {}
        self._hosts: dict[int, str] = {}
        #: Those that do not see the run's files.
        self._apart: set[int] = set()
        self._spools: dict[int, Spooled] = {}
        self._spooling = ""
        self._launch: Launch | None = None
        self._since = 0.0

    def start(self, launch: Launch) -> None:
        """Have them started."""
        self._launch, self._since = launch, time.monotonic()
        self._cluster.start(launch)

    def start_again(self) -> None:
        """Have others started in their place."""
        assert self._launch is not None
        self.start(self._launch)

    def joined(self, message: AgentJoined, peer: bytes) -> None:
        """One has come."""
        self.peers[message.agent] = peer
        self._hosts[message.agent] = message.host
        if not message.shares:
            self._apart.add(message.agent)

    def describe(self, agent: int, lost: AgentsLost) -> dict[str, Any]:
        """Return the fields of `worker_lost` for the loss of an agent.

        Clusters that name the agent have one worker on each, of the same number.
        """
        known = {"executor": lost.executor, "host": self._hosts.get(agent)}
        more = {name: value for name, value in known.items() if value is not None}
        fields = {"rank": agent, "role": "worker", "reason": lost.reason}
        return {**fields, "cause": Cause.DIED.label, **more}

    def forget(self) -> None:
        """They are gone; others will come."""
        self.peers.clear()
        self._spools.clear()
        self._apart.clear()
        self._since = time.monotonic()

    @property
    def complete(self) -> bool:
        """Whether all are there, with all they bring."""
        expected = self._cluster.agents
        ready = not self._cluster.spools or len(self._spools) == expected
        return len(self.peers) == expected and ready

    def begin(self, labels: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Begin with the rows that the agents have; yield the events of that, kind and fields.

        `labels` are the columns with labels.
        """
        if not self._spools:
            return
        self._spooling = uuid.uuid4().hex
        rows = {name: sum(map(sum, parts)) for name, parts in self._rows().items()}
        size = sum(spool.size for spool in self._spools.values())
        nulls = self._nulls()
        agents = len(self._spools)
        yield "spooled", {"rows": rows, "bytes": size, "agents": agents, "nulls": nulls}
        unlabelled = [
            f"{count:,} of {rows[frame]:,} rows of {frame} ('{column}')"
            for frame, columns in nulls.items()
            for column, count in columns.items()
            if column in labels
        ]
        if unlabelled:
            text = f"the label is null in {', '.join(unlabelled)}: these add nothing to the loss"
            yield "warning", {"text": text}

    def start_roles(self, agent: int, roles: list[RoleSpec], checkpoint: str | None) -> None:
        """Have an agent start these, which may go on from a checkpoint."""
        peer = self.peers[agent]
        if agent in self._apart and self._carrier is not None:
            self._carrier.bring(peer, checkpoint, partial(self._server.send, peer))
        self._server.send(peer, StartRoles(roles, self._rows(), self._spooling))

    def tell_all(self, message: Messages) -> None:
        """Send the same to each."""
        for peer in self.peers.values():
            self._server.send(peer, message)

    def saved(self, step: int, best: Any) -> None:
        """A checkpoint is complete where its workers are."""
        if self._apart and self._carrier is not None:
            self._carrier.saved(step, best, self._machines())

    def take(self, message: Spooled | FilePart | FilesSent, buffers: Sequence[Any]) -> None:
        """One has its rows, or files of the run have come from it."""
        if isinstance(message, Spooled):
            self._spools[message.agent] = message
            return
        assert self._carrier is not None
        if isinstance(message, FilePart):
            self._carrier.part(message, buffers[0])
        else:
            self._carrier.sent(message, self._machines())

    @property
    def carrying(self) -> bool:
        """Whether files are on their way."""
        return self._carrier is not None and self._carrier.busy

    def _machines(self) -> dict[int, Send]:
        return {agent: partial(self._server.send, self.peers[agent]) for agent in self._apart}

    def tick(self, now: float, *, gathering: bool) -> None:
        """Take in what has been fetched from them; raise when they have not come in time."""
        if self._carrier is not None:
            self._carrier.settle(self._machines())
        if gathering:
            self._check_patience(now)

    def _check_patience(self, now: float) -> None:
        patience = self._cluster.patience
        late = patience is not None and now - self._since > patience
        if late and len(self.peers) < self._cluster.agents:
            raise self._cluster.late()

    def wait_for_all(self, seconds: float) -> None:
        """One that has only just started must join before it can be told to go."""
        deadline = time.monotonic() + seconds
        while len(self.peers) < self._cluster.agents and time.monotonic() < deadline:
            if self._cluster.ended:
                return
            envelope = self._server.receive(TICK_SECONDS)
            if envelope is not None and isinstance(envelope.message, AgentJoined):
                self.joined(envelope.message, envelope.peer)

    def _nulls(self) -> dict[str, dict[str, int]]:
        """Return the rows without a value, by frame and column."""
        counts: dict[str, dict[str, int]] = {}
        for spool in self._spools.values():
            for name, columns in spool.nulls.items():
                frame = counts.setdefault(name, {})
                for column, rows in columns.items():
                    frame[column] = frame.get(column, 0) + rows
        return {name: columns for name, columns in counts.items() if columns}

    def _rows(self) -> dict[str, list[list[int]]]:
        """The rows of every batch, by frame and agent."""
        parts = [self._spools[agent].rows for agent in sorted(self._spools)]
        return {name: [rows[name] for rows in parts] for name in (parts[0] if parts else ())}
