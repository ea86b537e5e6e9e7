"""The agents of a job: who is there, with which rows, and who has fallen silent."""

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
    """All agents of a cluster, of which some may be absent.

    To those that do not see the run's files, the `carrier` brings them.
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
        #: Since when the others are awaited; infinity: nothing has started them (yet).
        self._absent = dict.fromkeys(range(cluster.agents), math.inf)
        #: The last one of each number, also of those that were lost.
        self._known: dict[int, AgentJoined] = {}
        #: The rows that the current generation reads, by agent.
        self._spools: dict[int, Spooled] = {}
        self._frames_digest = ""

    def start(self, launch: Launch) -> None:
        """Have all of them started."""
        self._cluster.start(launch)
        self.expect(range(self._cluster.agents))

    def restart(self, agents: Sequence[int]) -> None:
        """Have others started in the place of lost ones."""
        self._cluster.restart(agents)
        self.expect(agents)

    def expect(self, agents: Iterable[int]) -> None:
        """Note that agents have just been started, and are to join."""
        self._absent |= dict.fromkeys(agents, self._clock())

    def give_up(self, agents: Iterable[int]) -> None:
        """Await agents no more that have not joined."""
        self._absent |= dict.fromkeys(agents, math.inf)

    # Who is there

    def require_known(self, agent: int | None) -> None:
        """Raise `ConfigError` for a number that the job does not have: the cluster is mistaken."""
        count = self._cluster.agents
        if agent is not None and agent not in range(count):
            name = type(self._cluster).__name__
            numbers = "0" if count == 1 else f"0 to {count - 1}"
            raise ConfigError(
                f"{name} has an agent {agent}, but this job has {number_of(count, 'agent')}: "
                f"number them from 0 (AgentOrder.agent), so here {numbers}"
            )

    def joined(self, message: AgentJoined, peer: bytes) -> None:
        """Note that an agent has come."""
        self._present[message.agent] = Present(peer, message, self._clock())
        self._absent.pop(message.agent, None)
        self._known[message.agent] = message

    def beat(self, message: AgentBeat) -> None:
        """Note a sign of life; one of an earlier incarnation means nothing."""
        agent = self._present.get(message.agent)
        if agent is not None and agent.joined.incarnation == message.incarnation:
            agent.last_seen = self._clock()

    def is_present(self, agent: int) -> bool:
        """Return whether an agent has joined, and was not lost since."""
        return agent in self._present

    def sent(self, peer: bytes) -> bool:
        """Return whether a message on this connection is of an agent that is present."""
        return any(agent.peer == peer for agent in self._present.values())

    def silent(self, timeout: float) -> list[int]:
        """Return those that have shown no sign of life for `timeout` seconds."""
        since = self._clock() - timeout
        return [n for n, agent in self._present.items() if agent.last_seen < since]

    def overdue(self) -> list[int]:
        """Return those that should have joined by now."""
        latest = self._clock() - self._cluster.patience
        return [agent for agent, since in self._absent.items() if since < latest]

    def forgive(self, seconds: float) -> None:
        """Do not count time in which this process itself did not run."""
        for agent in self._present.values():
            agent.last_seen = min(agent.last_seen + seconds, self._clock())
        self._absent = {agent: since + seconds for agent, since in self._absent.items()}

    def lose(self, agents: Iterable[int]) -> None:
        """Count agents as gone. One that is only unreachable ends its roles when it reads this."""
        for agent in agents:
            gone = self._present.pop(agent, None)
            self._absent[agent] = math.inf
            if gone is not None:
                self._server.send(gone.peer, Shutdown())
            if self._carrier is not None:
                self._carrier.lost(agent)

    @property
    def complete(self) -> bool:
        """Whether all are there, with all they bring."""
        return not self._absent and all(self.is_ready(agent) for agent in self._present)

    def is_ready(self, agent: int) -> bool:
        """Return whether an agent is there, with the rows it brings."""
        present = self._present.get(agent)
        return present is not None and (not self._cluster.brings_rows or present.spool is not None)

    @property
    def places(self) -> list[AgentJoined]:
        """What all of them have said of their places; of those that are absent, the last ones."""
        return [self._known[agent] for agent in range(self._cluster.agents)]

    def brought_the_same(self, agent: int) -> bool:
        """Return whether an agent in a lost one's place has the rows that the other one had."""
        spool = self._present[agent].spool
        return spool is None or spool == self._spools.get(agent)

    def where(self, agent: int) -> str:
        """Name an agent for people: its number, and the host that it is or was on."""
        known = self._known.get(agent)
        return f"agent {agent}" if known is None else self._cluster.describe(agent, known.host)

    def place_of(self, agent: int) -> str:
        """Name the place of an agent for people; nothing where all are in one."""
        known = self._known.get(agent)
        if known is None or self._cluster.agents == 1:
            return ""
        return self._cluster.describe(agent, known.host)

    def start_fields(self, agent: int, roles: Iterable[RoleSpec]) -> dict[str, Any]:
        """Return where an agent is, and what it starts, as in the event `generation`."""
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

    # Their rows

    def begin(self, labels: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Begin with the rows that agents have; yield the events of that, kind and fields.

        `labels` are the columns with labels. Nothing happens if all have what they had before.
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
        """Return the rows of every batch, by frame and agent."""
        parts = [spool.rows for spool in self._spools.values()]
        return {name: [rows[name] for rows in parts] for name in (parts[0] if parts else ())}

    # What is sent to them

    def start_roles(self, agent: int, roles: list[RoleSpec], checkpoint: str | None) -> None:
        """Have an agent start these, which may continue from a checkpoint."""
        present = self._present[agent]
        if not present.joined.shares and self._carrier is not None:
            self._carrier.bring(present.peer, checkpoint, partial(self._server.send, present.peer))
        start = StartRoles(roles, self._rows_by_frame(), self._frames_digest)
        self._server.send(present.peer, start)

    def send(self, agent: int, message: Messages) -> None:
        """Send to one agent, if it is there."""
        if agent in self._present:
            self._server.send(self._present[agent].peer, message)

    def send_all(self, message: Messages) -> None:
        """Send the same to each that is there."""
        for agent in self._present:
            self.send(agent, message)

    # Files of the run

    def saved(self, step: int, best: Any) -> None:
        """Fetch a checkpoint that is complete where its workers are."""
        machines = self._machines()
        if machines and self._carrier is not None:
            self._carrier.saved(step, best, machines)

    def take(self, message: Spooled | FilePart | FilesSent, buffers: Sequence[Any]) -> None:
        """Note the rows of an agent, or take in files of the run that come from it."""
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
        """Whether files are on their way."""
        return self._carrier is not None and self._carrier.busy

    def settle(self) -> None:
        """Take in files that have been fetched."""
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

        Not any longer than until someone is `impatient`.
        """
        deadline = self._clock() + seconds
        while min(self._absent.values(), default=math.inf) < math.inf:
            if self._cluster.ended or self._clock() >= deadline or impatient():
                return
            envelope = self._server.receive(TICK_SECONDS)
            if envelope is not None and isinstance(envelope.message, AgentJoined):
                self.joined(envelope.message, envelope.peer)


def _digest_of(spools: Sequence[Spooled]) -> str:
    """Return what the rows of all agents are recognised by."""
    encoded = msgspec.json.encode(spools, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()


def _added_nulls(spools: Iterable[Spooled]) -> dict[str, dict[str, int]]:
    """Return the rows without a value, by frame and column."""
    counts: dict[str, dict[str, int]] = {}
    for spool in spools:
        for name, columns in spool.nulls.items():
            frame = counts.setdefault(name, {})
            for column, rows in columns.items():
                frame[column] = frame.get(column, 0) + rows
    return {name: columns for name, columns in counts.items() if columns}
