"""Runs a job: starts roles through agents, watches them, and acts on what policies decide."""

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import Any, final

from flambeau.clusters.base import Cluster, Launch
from flambeau.config import Recovery
from flambeau.coordination import failures
from flambeau.coordination.failures import Failure, Verdict
from flambeau.coordination.membership import Membership
from flambeau.coordination.protocol import (
    CODEC,
    AgentJoined,
    Begin,
    EndRoles,
    Heartbeat,
    Messages,
    Report,
    Role,
    RoleDone,
    RoleExited,
    RoleFailed,
    RoleJoined,
    RoleOutput,
    RoleSpec,
    Shutdown,
    StartRoles,
    Stop,
)
from flambeau.messaging import Envelope, Server, new_secret
from flambeau.observe import Event, Observer

#: After a first failure, how long to wait for others that may explain it better.
SETTLE_SECONDS = 1.0
TICK_SECONDS = 0.1


#: Signs of life: from a role itself, or from its agent about it.
FromRole = RoleJoined | Heartbeat | Report | RoleFailed | RoleDone | RoleExited


class Phase(Enum):
    """The life of a job."""

    GATHERING = "waiting for the agents"
    RUNNING = "the roles of a generation are at work"
    SETTLING = "something failed; its cause is being found out"
    ENDING = "the generation's processes are being ended"
    OVER = "no process is left"


@dataclass
class Outcome:
    """How a job ended. `failure` and `interrupted` are both unset when it went well."""

    summaries: dict[int, dict[str, Any]] = field(default_factory=dict)
    status: str = "finished"
    failure: Failure | None = None
    interrupted: signal.Signals | None = None
    restarts: int = 0


@dataclass(frozen=True)
class Team:
    """Which roles a job has."""

    workers: int
    role: Role = Role.WORKER
    evaluator: bool = False


@final
class Controller:
    """The coordinator's loop. Runs in the thread that calls `run`."""

    def __init__(
        self,
        team: Team,
        cluster: Cluster,
        observer: Observer,
        recovery: Recovery,
        host: str,
        *,
        graceful: bool,
    ) -> None:
        self._team, self._cluster, self._observer = team, cluster, observer
        self._recovery, self._graceful = recovery, graceful
        self.secret = new_secret()
        self._server: Server[Messages] = Server(CODEC, self.secret, host)
        self._agents: dict[int, bytes] = {}
        self._members = Membership([], 0.0)
        self._phase = Phase.GATHERING
        self._failures: list[Failure] = []
        self._settle_until = 0.0
        self._signals = 0
        self._stop_deadline: float | None = None
        self._generation = 0
        self._outcome = Outcome()
        self._evaluator_released = False

    @property
    def address(self) -> str:
        """Where agents and roles find the coordinator."""
        return self._server.address

    def run(self, launch: Launch) -> Outcome:
        """Start the agents and run the job to its end. No process of it is left afterwards."""
        try:
            with self._catching_signals():
                self._cluster.start(launch)
                while self._phase is not Phase.OVER:
                    envelope = self._server.receive(TICK_SECONDS)
                    if envelope is not None:
                        self._handle(envelope)
                    self._tick()
        finally:
            self._shutdown()
        return self._outcome

    # What arrives

    def _handle(self, envelope: Envelope[Messages]) -> None:
        message = envelope.message
        if isinstance(message, AgentJoined):
            self._agents[message.agent] = envelope.peer
            if len(self._agents) == self._cluster.agents:
                self._start_generation()
        elif isinstance(message, RoleOutput):
            for line in message.lines:
                self._emit("log", rank=message.spec.rank, stream=message.stream, text=line)
        elif isinstance(message, FromRole) and message.spec in self._members:
            # Words of an older generation come too late to matter.
            self._members.seen(message.spec, time.monotonic())
            self._handle_role(envelope.peer, message)

    def _handle_role(self, peer: bytes, message: FromRole) -> None:
        if isinstance(message, RoleJoined):
            self._members.joined(peer, message, time.monotonic())
            if message.spec.role.in_group and self._members.complete():
                self._begin()
        elif isinstance(message, Report):
            self._emit(message.kind, **message.fields)
        elif isinstance(message, RoleFailed):
            self._failed(failures.of_exception(message))
        elif isinstance(message, RoleDone):
            self._done(message)
        elif isinstance(message, RoleExited):
            self._exited(message)

    def _begin(self) -> None:
        begin = Begin(self._members.store())
        for member in self._members.group():
            assert member.peer is not None
            self._server.send(member.peer, begin)

    def _done(self, message: RoleDone) -> None:
        self._members[message.spec].done = True
        if message.spec.role.in_group:
            self._outcome.summaries[message.spec.rank] = message.summary
            self._outcome.status = message.status
        if self._members.group_done() and not self._evaluator_released:
            self._evaluator_released = True
            self._ask_to_stop(Role.EVALUATOR)

    def _exited(self, message: RoleExited) -> None:
        member = self._members[message.spec]
        member.exited = True
        reported = any(failure.spec == message.spec for failure in self._failures)
        expected = member.done or reported or self._phase is Phase.ENDING
        if not expected and (message.code != 0 or self._team.role is not Role.SCRIPT):
            self._failed(failures.of_exit(message.spec, message.code))
        if self._members.all_exited() and self._phase is Phase.RUNNING:
            self._phase = Phase.OVER

    def _failed(self, failure: Failure) -> None:
        if self._phase not in (Phase.RUNNING, Phase.SETTLING):
            return
        self._failures.append(failure)
        if self._phase is Phase.RUNNING:
            self._phase = Phase.SETTLING
            self._settle_until = time.monotonic() + SETTLE_SECONDS

    # What time brings

    def _tick(self) -> None:
        now = time.monotonic()
        self._notice_signals(now)
        self._notice_silence(now)
        reason = self._cluster.failed()
        if reason is not None:
            raise RuntimeError(f"an agent ended before its time: {reason}")
        settled = now >= self._settle_until or len(self._failures) == len(self._members.all())
        if self._phase is Phase.SETTLING and settled:
            self._end_generation(grace=0.0 if self._graceful else 5.0)
        if self._phase is Phase.ENDING and self._members.all_exited():
            self._act_on_failure()

    def _notice_silence(self, now: float) -> None:
        timeout = self._recovery.heartbeat_timeout
        if self._phase is Phase.RUNNING:
            for member in self._members.silent(now, timeout):
                self._failed(failures.of_silence(member.spec, timeout))

    def _notice_signals(self, now: float) -> None:
        if not self._signals or self._phase in (Phase.ENDING, Phase.OVER):
            return
        if self._stop_deadline is None:
            self._stop_deadline = now + self._recovery.grace_seconds
            if self._phase is Phase.GATHERING:
                self._phase = Phase.OVER
                return
            if self._graceful:
                self._emit("warning", text="stopping after this step; once more to end at once")
                self._ask_to_stop(self._team.role)
            else:
                self._end_generation(grace=5.0)
        elif self._signals > 1 or now > self._stop_deadline:
            self._end_generation(grace=0.0)

    def _ask_to_stop(self, role: Role) -> None:
        for member in self._members.all():
            if member.spec.role is role and member.peer is not None:
                self._server.send(member.peer, Stop())

    # What is done

    def _start_generation(self) -> None:
        self._failures.clear()
        specs = self._specs()
        everybody = [spec for roles in specs.values() for spec in roles]
        self._members = Membership(everybody, time.monotonic())
        self._phase = Phase.RUNNING
        self._evaluator_released = False
        self._emit("generation", number=self._generation)
        for agent, roles in specs.items():
            self._server.send(self._agents[agent], StartRoles(roles))

    def _specs(self) -> dict[int, list[RoleSpec]]:
        """The roles of this generation by agent: workers spread evenly, the rest on the first."""
        agents, workers = len(self._agents), self._team.workers
        bounds = [round(index * workers / agents) for index in range(agents + 1)]
        specs: dict[int, list[RoleSpec]] = {}
        for agent, (first, last) in enumerate(itertools.pairwise(bounds)):
            specs[agent] = [
                RoleSpec(
                    role=self._team.role,
                    rank=rank,
                    world=workers,
                    local_rank=rank - first,
                    local_world=last - first,
                    node=agent,
                    generation=self._generation,
                )
                for rank in range(first, last)
            ]
        if self._team.evaluator:
            evaluator = RoleSpec(Role.EVALUATOR, 0, 1, 0, 1, 0, self._generation)
            specs[0].append(evaluator)
        return specs

    def _end_generation(self, grace: float) -> None:
        self._phase = Phase.ENDING
        for peer in self._agents.values():
            self._server.send(peer, EndRoles(self._generation, grace))

    def _act_on_failure(self) -> None:
        if not self._failures or self._signals:
            self._phase = Phase.OVER
            return
        cause = failures.root_cause(self._failures)
        if cause.cause is not failures.Cause.USER_ERROR:
            self._emit("worker_lost", rank=cause.spec.rank, reason=cause.message)
        verdict = failures.decide(cause, self._outcome.restarts, self._recovery.max_restarts)
        if verdict is Verdict.FAIL:
            self._outcome.failure = cause
            self._phase = Phase.OVER
            return
        self._generation += 1
        self._outcome.restarts += 1
        self._emit("restart", generation=self._generation, reason=cause.message)
        self._start_generation()

    def _shutdown(self) -> None:
        self._await_agents(time.monotonic() + 10)
        for peer in self._agents.values():
            self._server.send(peer, Shutdown())
        try:
            self._cluster.stop()
        finally:
            self._server.close()

    def _await_agents(self, deadline: float) -> None:
        """An agent that has only just started must join before it can be told to go."""
        while len(self._agents) < self._cluster.agents and time.monotonic() < deadline:
            if self._cluster.failed() is not None:
                return
            envelope = self._server.receive(TICK_SECONDS)
            if envelope is not None and isinstance(envelope.message, AgentJoined):
                self._agents[envelope.message.agent] = envelope.peer

    def _emit(self, kind: str, **fields: Any) -> None:
        self._observer.observe(Event(kind, time.time(), fields))

    # Ctrl-C and SIGTERM

    @contextmanager
    def _catching_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may; its owner will end us
            return
        caught = (signal.SIGINT, signal.SIGTERM)
        before: dict[signal.Signals, Any] = {
            number: signal.signal(number, self._on_signal) for number in caught
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._outcome.interrupted = signal.Signals(number)
