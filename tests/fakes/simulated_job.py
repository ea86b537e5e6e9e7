"""A controller whose clock, agents and roles are simulated: no socket, no process, no waiting."""

import signal
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Recovery
from flambeau.coordination.file_messages import AgentBeat, AgentJoined, Spooled
from flambeau.coordination.payloads import ScriptPayload
from flambeau.coordination.protocol import (
    EndRole,
    EndRoles,
    Heartbeat,
    Messages,
    RoleDone,
    RoleExited,
    RoleJoined,
    ServerReady,
    Shutdown,
    StartRoles,
    Stop,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.controller import Controller
from flambeau.driver.control.phases import Phase
from flambeau.driver.control.starting_points import StartingPoint, StartingPoints
from flambeau.driver.coordinators import PassiveCoordinator, TrainingCoordinator
from flambeau.driver.outcome import Outcome
from flambeau.driver.topology import Topology
from flambeau.messaging import Envelope
from flambeau.observe import Event, Observer

#: More simulated seconds than any job of a simulation may take.
FOR_EVER = 1_000.0
JOIN_SECONDS = 2.0
CHOOSE_SECONDS = 1.0
WORK_SECONDS = 10.0
EXIT_SECONDS = 0.5


class Elastic(TrainingCoordinator):
    """Workers that continue when others are lost."""

    elastic = True

    def __init__(self, *, needs_first: bool = False) -> None:
        super().__init__()
        self.needs_first = needs_first
        self.gone: list[RoleSpec] = []

    def dismissed(self, spec: RoleSpec) -> None:
        self.gone.append(spec)

    def stop(self) -> None:
        for spec in self.stage.roles(Role.WORKER):
            self.stage.send(spec, Stop())


class Choice(StartingPoints):
    """A starting point that takes a second to find."""

    def __init__(self, job: "SimulatedJob", *, saved: bool) -> None:
        super().__init__()
        self._job, self._saved = job, saved

    @property
    def exist(self) -> bool:
        return self._saved

    def choose(self, *, again: bool) -> Future[StartingPoint]:
        found: Future[StartingPoint] = Future()
        point = StartingPoint("step-00000001" if self._saved else None)
        self._job.after(CHOOSE_SECONDS, lambda: found.set_result(point))
        return found


@dataclass
class Process:
    """A simulated role."""

    spec: RoleSpec
    agent: "SimulatedAgent"
    began: float


@dataclass
class SimulatedAgent:
    """An agent; `frozen`: it and its roles do nothing, and nobody is told."""

    job: "SimulatedJob"
    number: int
    incarnation: str
    alive: bool = True
    frozen: bool = False
    #: Whether it does not report that roles have ended.
    stuck: bool = False
    roles: dict[RoleSpec, Process] = field(default_factory=dict)

    @property
    def peer(self) -> bytes:
        return self.incarnation.encode()

    def say(self, message: Messages) -> None:
        if self.alive and not self.frozen:
            self.job.inbox.append(Envelope(self.peer, message, ()))

    def join(self) -> None:
        host = self.job.hosts.get(self.number, f"host-{self.number}")
        self.say(AgentJoined(self.number, host, host, [0, 1], True, self.incarnation))
        if self.job.cluster.brings_rows:
            self.say(self.job.rows_of(self))

    def hear(self, message: Messages) -> None:
        if not self.alive or self.frozen:
            return
        if isinstance(message, StartRoles):
            for spec in message.roles:
                self.roles[spec] = Process(spec, self, self.job.now)
                self.say(RoleJoined(spec, 1))
                if spec.role is Role.SERVER:
                    self.say(ServerReady(spec, "tcp://somewhere"))
        elif isinstance(message, EndRoles):
            for spec in [spec for spec in self.roles if spec.generation == message.generation]:
                self.job.after(EXIT_SECONDS, lambda spec=spec: self.exit(spec, -9))
        elif isinstance(message, EndRole) and message.spec in self.roles:
            self.exit(message.spec, -9)
        elif isinstance(message, Shutdown):
            self.alive = False
            self.roles.clear()

    def exit(self, spec: RoleSpec, code: int) -> None:
        if self.stuck or self.roles.pop(spec, None) is None:
            return
        self.say(RoleExited(spec, code))

    def beat(self) -> None:
        self.say(AgentBeat(self.number, self.incarnation))
        for spec in self.roles:
            self.say(Heartbeat(spec))

    def finish(self, spec: RoleSpec) -> None:
        if self.alive and not self.frozen and spec in self.roles:
            self.say(RoleDone(spec, "finished", {}))
            self.exit(spec, 0)


class SimulatedCluster(Cluster):
    """Agents that join after two seconds."""

    coordinator_host = "127.0.0.1"

    def __init__(self, job: "SimulatedJob", agents: int, *, single: bool, rows: bool) -> None:
        self._job, self.agents = job, agents
        self.replaces_single_agents, self.brings_rows = single, rows
        self.ended_agents: list[AgentEnded] = []
        self.restarted: list[list[int]] = []
        #: Whether agents come that are started again.
        self.replaces = True
        self.stopped = False

    def start(self, launch: Launch) -> None:
        for number in range(self.agents):
            self._job.launch(number)

    def poll(self) -> list[AgentEnded]:
        ended, self.ended_agents = self.ended_agents, []
        return ended

    def restart(self, agents: Sequence[int]) -> None:
        self.restarted.append(list(agents))
        if not self.replaces_single_agents:
            self._job.end_all()
        for number in agents if self.replaces else ():
            self._job.launch(number)

    def stop(self) -> None:
        self.stopped = True
        self._job.end_all()


class SimulatedServer:
    """Messages without sockets; waiting lets simulated time pass."""

    address = "tcp://simulated"

    def __init__(self, job: "SimulatedJob") -> None:
        self._job = job

    def receive(self, timeout: float) -> Envelope[Messages] | None:
        self._job.act()
        if self._job.inbox:
            return self._job.inbox.popleft()
        if timeout > 0:
            self._job.pass_time(timeout)
        return None

    def send(self, peer: bytes, message: Messages, buffers: Sequence[Any] = ()) -> bool:
        for agent in self._job.agents:
            if agent.peer == peer:
                agent.hear(message)
        return True

    def close(self) -> None:
        """Nothing to close."""


class SimulatedJob(Observer):
    """A job of `workers` on `agents`. `at` says what happens in which phase."""

    def __init__(
        self,
        *,
        agents: int = 2,
        servers: int = 0,
        single: bool = True,
        elastic: bool = False,
        needs_first: bool = False,
        saved: bool = True,
        rows: bool = False,
        restarts: int = 1,
        graceful: bool = True,
    ) -> None:
        self.now = 0.0
        #: How long an agent takes to join, if it is not like the others.
        self.join_seconds: dict[int, float] = {}
        #: Where the next one of a number is, if it does not have a host of its own.
        self.hosts: dict[int, str] = {}
        self.inbox: deque[Envelope[Messages]] = deque()
        self.agents: list[SimulatedAgent] = []
        self.events: list[Event] = []
        self.seen: list[Phase] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._plans: list[tuple[Phase, Callable[[], None]]] = []
        self._next_beat = 1.0
        self.cluster = SimulatedCluster(self, agents, single=single, rows=rows)
        self.elastic = Elastic(needs_first=needs_first)
        coordinator = self.elastic if elastic else PassiveCoordinator(Role.WORKER)
        topology = Topology(
            agents, servers=servers, coordinator=coordinator, starts=Choice(self, saved=saved)
        )
        server: Any = SimulatedServer(self)
        self.controller = Controller(
            topology,
            self.cluster,
            self,
            Recovery(max_restarts=restarts),
            graceful=graceful,
            server=server,
            clock=lambda: self.now,
        )

    # What a test says

    def at(self, phase: Phase, *plans: Callable[[], None]) -> None:
        """Do something once when the job is in a phase; the next thing a second later."""
        for plan in plans:
            self._plans.append((phase, plan))

    def run(self) -> Outcome:
        """Run the job; one that takes for ever is an error."""
        return self.controller.run(Launch("", b"", "", ScriptPayload("none.py")))

    @property
    def phase(self) -> Phase:
        return self.controller._job.phase

    def agent(self, number: int) -> SimulatedAgent:
        """The newest agent with a number."""
        return [agent for agent in self.agents if agent.number == number][-1]

    def kill(self, number: int, *, replaceable: bool = True) -> None:
        """End an agent and its roles; the cluster notices, and may have no other place."""
        agent = self.agent(number)
        agent.alive = False
        agent.roles.clear()
        self.cluster.ended_agents.append(AgentEnded("killed", number, "node 7", replaceable))

    def freeze(self, number: int) -> None:
        """Let an agent and its roles fall silent; nobody notices."""
        self.agent(number).frozen = True

    def rejoin(self, number: int) -> None:
        """Have an engine put another agent into one's place, without a word.

        Where single ones cannot be replaced, all of them.
        """
        single = self.cluster.replaces_single_agents
        for each in [number] if single else range(self.cluster.agents):
            agent = self.agent(each)
            agent.alive = False
            agent.roles.clear()
            self.launch(each)

    def end_all(self) -> None:
        """End all agents and roles."""
        for agent in self.agents:
            agent.alive = False
            agent.roles.clear()

    def exit_role(self, number: int, code: int = 1) -> None:
        """End a role of an agent."""
        agent = self.agent(number)
        for spec in list(agent.roles)[:1]:
            agent.exit(spec, code)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.controller._job.signals._note(signal.SIGINT, None)

    def say(self, message: Messages, peer: bytes = b"stranger") -> None:
        """Have a message arrive."""
        self.inbox.append(Envelope(peer, message, ()))

    # What the parts say

    def launch(self, number: int) -> None:
        agent = SimulatedAgent(self, number, f"agent-{number}-{len(self.agents)}")
        self.agents.append(agent)
        self.after(self.join_seconds.get(number, JOIN_SECONDS), agent.join)

    def rows_of(self, agent: SimulatedAgent) -> Spooled:
        """The rows that an agent brings."""
        return Spooled(agent.number, {"train": [10 + agent.number]}, 10)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._later.append((self.now + seconds, action))

    def act(self) -> None:
        if not self.seen or self.seen[-1] is not self.phase:
            self.seen.append(self.phase)
        if self._plans and self._plans[0][0] is self.phase:
            _, plan = self._plans.pop(0)
            plan()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < FOR_EVER, f"the job hangs: {[phase.name for phase in self.seen]}"
        due = [action for time, action in self._later if time <= self.now]
        self._later = [item for item in self._later if item[0] > self.now]
        for action in due:
            action()
        if self.now >= self._next_beat:
            self._next_beat = self.now + 1.0
            for agent in self.agents:
                agent.beat()
        self._work()

    def _work(self) -> None:
        """Finish the roles of a generation that has worked long enough: workers first."""
        job = self.controller._job
        roles = [role for agent in self.agents if agent.alive for role in agent.roles.values()]
        for role in roles:
            worked = job.generation.begun and self.now - role.began >= WORK_SECONDS
            released = role.spec.role is not Role.SERVER or job.generation.released
            if worked and released:
                role.agent.finish(role.spec)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        """Nothing to close."""

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind."""
        return [dict(event.fields) for event in self.events if event.kind == kind]

    @property
    def left(self) -> list[SimulatedAgent]:
        """Agents that still run."""
        return [agent for agent in self.agents if agent.alive]
