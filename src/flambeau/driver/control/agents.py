"""The agents of a job: which are present, with which rows, and which are silent."""

import hashlib
import math
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import msgspec

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.file_transfer.carrier import Carrier, Send
from flambeau.clusters.local import LOOPBACK
from flambeau.config.plural import number_of
from flambeau.coordination.failures import Cause
from flambeau.coordination.file_messages import (
    AgentBeat,
    AgentJoined,
    FilePart,
    FilesSent,
    Spooled,
)
from flambeau.coordination.protocol import Messages, Shutdown, StartRoles
from flambeau.coordination.roles import RoleSpec
from flambeau.errors import ConfigError
from flambeau.messaging import Server

TICK_SECONDS = 0.1


@dataclass
class Present:
    """An agent that has joined."""

    peer: bytes
    joined: AgentJoined
    last_seen: float
    spool: Spooled | None = None


@final
class Agents:
    """All agents of a cluster, some of which may be absent.

    The `carrier` copies the run's files to agents that cannot see them.
    """

    def __init__(
        self,
        cluster: Cluster,
        server: Server[Messages],
        carrier: Carrier | None,
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._server, self._carrier = cluster, server, carrier
        self._clock = clock
        self._present: dict[int, Present] = {}
        #: When absent agents were started, in seconds of the clock; infinity: not started (yet).
        self._absent = dict.fromkeys(range(cluster.agents), math.inf)
        #: The latest `AgentJoined` of each number, also of agents that were lost.
        self._known: dict[int, AgentJoined] = {}
        #: The rows that the current generation reads, by agent.
        self._spools: dict[int, Spooled] = {}
        self._frames_digest = ""

    def start(self, launch: Launch) -> None:
        """Start all agents."""
        self._cluster.start(launch)
        self.expect(range(self._cluster.agents))

    def restart(self, agents: Sequence[int]) -> None:
        """Start new agents in place of lost ones."""
        self._cluster.restart(agents)
        self.expect(agents)

    def expect(self, agents: Iterable[int]) -> None:
        """Record that agents have just been started and should join."""
        self._absent |= dict.fromkeys(agents, self._clock())

    def give_up(self, agents: Iterable[int]) -> None:
        """Stop waiting for agents that have not joined."""
        self._absent |= dict.fromkeys(agents, math.inf)

    # Presence
    def require_known(self, agent: int | None) -> None:
        """Raise `ConfigError` for an unknown number of an agent: an error of the cluster."""
        count = self._cluster.agents
        if agent is not None and agent not in range(count):
            name = type(self._cluster).__name__
            numbers = "0" if count == 1 else f"0 to {count - 1}"
            raise ConfigError(
                f"{name} has an agent {agent}, but this job has {number_of(count, 'agent')}: "
                f"number them from 0 (AgentOrder.agent), so here {numbers}"
            )

    def joined(self, message: AgentJoined, peer: bytes) -> None:
        """Record that an agent has joined."""
        self._present[message.agent] = Present(peer, message, self._clock())
        self._absent.pop(message.agent, None)
        self._known[message.agent] = message

    def beat(self, message: AgentBeat) -> None:
        """Record an agent's heartbeat; those of an earlier incarnation are ignored."""
        agent = self._present.get(message.agent)
        if agent is not None and agent.joined.incarnation == message.incarnation:
            agent.last_seen = self._clock()

    def is_present(self, agent: int) -> bool:
        """Return whether an agent has joined, and has not been lost since."""
        return agent in self._present

    def sent(self, peer: bytes) -> bool:
        """Return whether a connection belongs to an agent that is present."""
        return any(agent.peer == peer for agent in self._present.values())

    def silent(self, timeout: float) -> list[int]:
        """Return the agents that have sent no heartbeat for `timeout` seconds."""
        since = self._clock() - timeout
        return [n for n, agent in self._present.items() if agent.last_seen < since]

    def overdue(self) -> list[int]:
        """Return the agents that should have joined by now."""
        latest = self._clock() - self._cluster.patience
        return [agent for agent, since in self._absent.items() if since < latest]

    def forgive(self, seconds: float) -> None:
        """Extend all time limits by time in which this process itself did not run."""
        for agent in self._present.values():
            agent.last_seen = min(agent.last_seen + seconds, self._clock())
        self._absent = {agent: since + seconds for agent, since in self._absent.items()}

    def lose(self, agents: Iterable[int]) -> None:
        """Treat agents as gone. An unreachable one ends its roles when it receives `Shutdown`."""
        for agent in agents:
            gone = self._present.pop(agent, None)
            self._absent[agent] = math.inf
            if gone is not None:
                self._server.send(gone.peer, Shutdown())
            if self._carrier is not None:
                self._carrier.lost(agent)

    @property
    def complete(self) -> bool:
        """Return whether all agents are present, with the rows that they bring."""
        return not self._absent and all(self.is_ready(agent) for agent in self._present)

    def is_ready(self, agent: int) -> bool:
        """Return whether an agent is present, with the rows that it brings."""
        present = self._present.get(agent)
        return present is not None and (not self._cluster.brings_rows or present.spool is not None)

    @property
    def places(self) -> list[AgentJoined]:
        """Return the latest `AgentJoined` of every agent, also of absent ones."""
        return [self._known[agent] for agent in range(self._cluster.agents)]

    def brought_the_same(self, agent: int) -> bool:
        """Return whether the replacement of a lost agent has the same rows."""
        spool = self._present[agent].spool
        return spool is None or spool == self._spools.get(agent)

    def where(self, agent: int) -> str:
        """Return an agent's name for messages: its number, and the host that it is or was on."""
        known = self._known.get(agent)
        return f"agent {agent}" if known is None else self._cluster.describe(agent, known.host)

    def place_of(self, agent: int) -> str:
        """Return the name of an agent's place for messages; empty if there is only one agent."""
        known = self._known.get(agent)
        if known is None or self._cluster.agents == 1:
            return ""
        return self._cluster.describe(agent, known.host)

    def start_fields(self, agent: int, roles: Iterable[RoleSpec]) -> dict[str, Any]:
        """Return an agent's host, number of cores and roles, as in the event `generation`."""
        known = self._known[agent]
        names = [spec.name for spec in roles]
        host = socket.gethostname() if known.host == LOOPBACK else known.host
        return {"host": host, "cores": len(known.cores), "roles": names}

    def loss_fields(self, ended: AgentEnded) -> dict[str, Any]:
        """Return the fields of the event `worker_lost` for the loss of an agent."""
        known = None if ended.agent is None else self._known.get(ended.agent)
        place = {self._cluster.place_name: ended.place, "host": known.host if known else None}
        more = {name: value for name, value in place.items() if value is not None}
        return {"reason": ended.reason, "cause": Cause.DIED.label, **more}

    # Rows
    def begin(self, labels: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Begin a generation with the rows of all agents; yield events as (kind, fields).

        `labels` are the label columns. Does nothing if all agents have the same rows as before.
        """
        spools = {n: agent.spool for n, agent in sorted(self._present.items()) if agent.spool}
        if not spools or spools == self._spools:
            return
        self._spools, self._frames_digest = spools, _digest_of(list(spools.values()))
        rows = {name: sum(map(sum, parts)) for name, parts in self._rows_by_frame().items()}
        size = sum(spool.size for spool in spools.values())
        nulls = _added_nulls(spools.values())
        yield "spooled", {"rows": rows, "bytes": size, "agents": len(spools), "nulls": nulls}
        unlabelled = [
            f"{count:,} of {rows[frame]:,} rows of {frame} ('{column}')"
            for frame, columns in nulls.items()
            for column, count in columns.items()
            if column in labels
        ]
        if unlabelled:
            text = f"the label is null in {', '.join(unlabelled)}: these add nothing to the loss"
            yield "warning", {"text": text}

    def _rows_by_frame(self) -> dict[str, list[list[int]]]:
        """Return the number of rows of every batch, by frame and agent."""
        parts = [spool.rows for spool in self._spools.values()]
        return {name: [rows[name] for rows in parts] for name in (parts[0] if parts else ())}

    # Messages to agents
    def start_roles(self, agent: int, roles: list[RoleSpec], checkpoint: str | None) -> None:
        """Start roles on an agent, from a checkpoint if one is given."""
        present = self._present[agent]
        if not present.joined.shares and self._carrier is not None:
            self._carrier.bring(present.peer, checkpoint, partial(self._server.send, present.peer))
        start = StartRoles(roles, self._rows_by_frame(), self._frames_digest)
        self._server.send(present.peer, start)

    def send(self, agent: int, message: Messages) -> None:
        """Send a message to one agent, if it is present."""
        if agent in self._present:
            self._server.send(self._present[agent].peer, message)

    def send_all(self, message: Messages) -> None:
        """Send a message to each agent that is present."""
        for agent in self._present:
            self.send(agent, message)

    # Files of the run

    def saved(self, step: int, best: Any) -> None:
        """Fetch a checkpoint that is complete on the machines of its workers."""
        machines = self._machines()
        if machines and self._carrier is not None:
            self._carrier.saved(step, best, machines)

    def take(self, message: Spooled | FilePart | FilesSent, buffers: Sequence[Any]) -> None:
        """Record the rows of an agent, or receive files of the run from it."""
        if isinstance(message, Spooled):
            self._present[message.agent].spool = message
            return
        assert self._carrier is not None
        if isinstance(message, FilePart):
            self._carrier.part(message, buffers[0])
        else:
            self._carrier.sent(message, self._machines())

    @property
    def carrying(self) -> bool:
        """Return whether files are being transferred."""
        return self._carrier is not None and self._carrier.busy

    def settle(self) -> None:
        """Commit checkpoints that have been fetched."""
        if self._carrier is not None:
            self._carrier.settle(self._machines())

    def _machines(self) -> dict[int, Send]:
        return {
            number: partial(self._server.send, agent.peer)
            for number, agent in self._present.items()
            if not agent.joined.shares
        }

    def wait_for_all(self, seconds: float, impatient: Callable[[], bool]) -> None:
        """Wait for agents that have only just started: they must join before they can be ended.

        Return after `seconds`, or earlier if the cluster has ended or `impatient` returns true.
        """
        deadline = self._clock() + seconds
        while min(self._absent.values(), default=math.inf) < math.inf:
            if self._cluster.ended or self._clock() >= deadline or impatient():
                return
            envelope = self._server.receive(TICK_SECONDS)
            if envelope is not None and isinstance(envelope.message, AgentJoined):
                self.joined(envelope.message, envelope.peer)


def _digest_of(spools: Sequence[Spooled]) -> str:
    """Return a digest that identifies the rows of all agents."""
    encoded = msgspec.json.encode(spools, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()


def _added_nulls(spools: Iterable[Spooled]) -> dict[str, dict[str, int]]:
    """Return the number of null values, by frame and column."""
    counts: dict[str, dict[str, int]] = {}
    for spool in spools:
        for name, columns in spool.nulls.items():
            frame = counts.setdefault(name, {})
            for column, rows in columns.items():
                frame[column] = frame.get(column, 0) + rows
    return {name: columns for name, columns in counts.items() if columns}
