"""Runs a job: starts roles through agents, watches them, and acts on what policies decide."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, final

import msgspec

from flambeau.clusters.base import Cluster, Launch
from flambeau.config import Recovery
from flambeau.coordination import failures
from flambeau.coordination.failures import Failure
from flambeau.coordination.file_messages import AgentJoined, FilePart, FilesSent, Spooled
from flambeau.coordination.membership import Membership
from flambeau.coordination.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
    EndRole,
    EndRoles,
    FromRole,
    FromShard,
    FromWorker,
    Heartbeat,
    Messages,
    Report,
    RoleDone,
    RoleExited,
    RoleFailed,
    RoleJoined,
    RoleOutput,
    ServerReady,
    ShowStacks,
    Shutdown,
    Stop,
)
from flambeau.coordination.rendezvous import Rendezvous, StoreRequest
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.agents import TICK_SECONDS, Agents
from flambeau.driver.coordinators import PassiveCoordinator, Stage
from flambeau.driver.generation import Generation
from flambeau.driver.outcome import Outcome
from flambeau.driver.phases import Phase
from flambeau.driver.restarts import Replacement, Restarts
from flambeau.driver.signals import Signals, Wish
from flambeau.driver.stall_watch import StallWatch
from flambeau.driver.topology import Topology
from flambeau.errors import WorkerLostError
from flambeau.messaging import Envelope, Server, new_secret
from flambeau.observe import Event, Observer

#: After a first failure, how long to wait for others that may explain it better.
SETTLE_SECONDS = 1.0


@final
class Controller(Stage):
    """The coordinator's loop. Runs in the thread that calls `run`."""

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        observer: Observer,
        recovery: Recovery,
        host: str,
        *,
        graceful: bool,
    ) -> None:
        self._topology, self._cluster, self._observer = topology, cluster, observer
        self._recovery, self._graceful = recovery, graceful
        self.secret = new_secret()
        self._server: Server[Messages] = Server(CODEC, self.secret, host, max_bytes=MAX_FRAME_BYTES)
        self._agents = Agents(cluster, self._server, topology.carrier)
        self._rendezvous = Rendezvous(self._server.send)
        self._phase = Phase.GATHERING
        self._failures: list[Failure] = []
        self._settle_until = 0.0
        self._last_words: dict[RoleSpec, float] = {}
        self._signals = Signals()
        self._outcome = Outcome()
        self._restarts = Restarts(topology.starts, recovery.max_restarts, self.emit)
        self._coordinator = topology.coordinator or PassiveCoordinator(topology.role)
        self._coordinator.attach(self)
        self._vigil = StallWatch(recovery, self._show_stacks)
        self._generation = self._make_generation(0, (), None)

    @property
    def address(self) -> str:
        """Where agents and roles find the coordinator."""
        return self._server.address

    @property
    def _members(self) -> Membership:
        return self._generation.members

    def run(self, launch: Launch) -> Outcome:
        """Start the agents and run the job to its end. No process of it is left afterwards."""
        try:
            with self._signals.caught():
                self._agents.start(launch)
                while self._phase is not Phase.OVER:
                    envelope = self._server.receive(TICK_SECONDS)
                    if envelope is not None:
                        self._handle(envelope)
                    self._tick()
        finally:
            self._shutdown()
        self._outcome.interrupted = self._signals.last
        self._outcome.restarts = self._restarts.count
        self._outcome.coordinator_summary = self._coordinator.summary()
        self._outcome.rows = self._coordinator.rows()
        return self._outcome

    # What arrives

    def _handle(self, envelope: Envelope[Messages]) -> None:
        message = envelope.message
        if isinstance(message, AgentJoined):
            if message.agent in self._agents.peers:
                self._begin_anew("the cluster has started the agents again")
            self._agents.joined(message, envelope.peer)
            self._start_if_complete()
        elif isinstance(message, Spooled | FilePart | FilesSent):
            self._agents.take(message, envelope.buffers)
            self._start_if_complete()
        elif isinstance(message, RoleOutput):
            for line in message.lines:
                self._tell_of(message.spec, "log", stream=message.stream, text=line)
        elif isinstance(message, StoreRequest):
            self._rendezvous.handle(envelope.peer, message, envelope.buffers)
        elif isinstance(message, FromShard):
            self._coordinator.handle(envelope.peer, message, envelope.buffers)
        elif isinstance(message, FromRole | FromWorker) and message.spec in self._members:
            # Words of an older generation come too late to matter.
            self._members.seen(message.spec, time.monotonic())
            if isinstance(message, FromWorker):
                self._coordinator.handle(envelope.peer, message, envelope.buffers)
            else:
                self._handle_role(envelope.peer, message)

    def _handle_role(self, peer: bytes, message: FromRole) -> None:
        if isinstance(message, RoleJoined):
            self._generation.joined(peer, message)
        elif isinstance(message, Heartbeat):
            self._vigil.beat(message, time.monotonic())
        elif isinstance(message, ServerReady):
            self._generation.server_ready(message)
        elif isinstance(message, Report):
            self._report(peer, message)
        elif isinstance(message, RoleFailed):
            self._tell_of(message.spec, "exception", **failures.exception_fields(message))
            self._failed(failures.of_exception(message))
        elif isinstance(message, RoleDone):
            self._done(message)
        elif isinstance(message, RoleExited):
            self._exited(message)

    def _report(self, peer: bytes, message: Report) -> None:
        if message.kind == "pulse":
            self._coordinator.handle(peer, message, ())
        elif message.kind == "saved":
            self._agents.saved(**message.fields)
        else:
            self.emit(message.kind, **message.fields)

    def _done(self, message: RoleDone) -> None:
        self._members[message.spec].done = True
        self._last_words.pop(message.spec, None)
        if message.spec.role.in_group:
            self._outcome.summaries[message.spec.rank] = message.summary
            self._outcome.status = message.status
        elif message.spec.role is Role.SERVER:
            self._outcome.servers[message.spec.rank] = message.summary
        if self._members.group_done() and not self._generation.released:
            self._generation.released = True
            for spec in (*self.roles(Role.EVALUATOR), *self.roles(Role.SERVER)):
                self.send(spec, Stop())

    def _exited(self, message: RoleExited) -> None:
        member = self._members[message.spec]
        member.exited = True
        reported = any(failure.spec == message.spec for failure in self._failures)
        expected = member.done or reported or self._phase is Phase.ENDING
        if expected or (message.code == 0 and self._topology.role is Role.SCRIPT):
            return
        if message.code == 0:
            # Its agent's word can be heard before its own, which come another way.
            self._last_words[message.spec] = time.monotonic() + SETTLE_SECONDS
        else:
            self._failed(failures.of_exit(message.spec, message.code, message.out_of_memory))

    def _failed(self, failure: Failure) -> None:
        if self._phase not in (Phase.RUNNING, Phase.SETTLING):
            return
        if self._can_replace(failure):
            self._replace(failure)
            return
        self._settle(failure)

    def _settle(self, failure: Failure) -> None:
        self._failures.append(failure)
        if self._phase is Phase.RUNNING:
            self._phase = Phase.SETTLING
            self._settle_until = time.monotonic() + SETTLE_SECONDS

    def _can_replace(self, failure: Failure) -> bool:
        """Whether just this role is started again, while the others go on."""
        running = self._phase is Phase.RUNNING and self._generation.begun
        # A server needs something to return to; before that, all start again.
        saved = failure.spec.role is not Role.SERVER or self._restarts.can_restore_servers
        together = failure.cause is failures.Cause.DEADLOCK
        elastic = self._coordinator.elastic and not self._signals.count and not together
        return elastic and running and saved and self._restarts.allow(failure)

    def _replace(self, failure: Failure) -> None:
        lost = failure.spec
        spec = msgspec.structs.replace(lost, attempt=lost.attempt + 1)
        self._tell_of(lost, "worker_lost", reason=failure.message, cause=failure.cause.label)
        self._generation.replace(lost, spec)
        self._coordinator.lost(lost)
        self._server.send(self._agents.peers[lost.node], EndRole(lost))
        self._restarts.plan_role(spec, failure, self._generation.number, time.monotonic())

    # What time brings

    def _tick(self) -> None:
        now = time.monotonic()
        self._coordinator.tick(now)
        self._notice_signals(now)
        self._notice_stalls(now)
        self._notice_ends(now)
        self._notice_agents(now)
        self._start_what_is_due(now)
        settled = now >= self._settle_until or len(self._failures) == len(self._members.all())
        if self._phase is Phase.SETTLING and settled:
            self._end_generation(grace=0.0 if self._graceful else 5.0)
        if self._phase is Phase.ENDING and self._members.all_exited():
            self._act_on_failure()

    def _start_what_is_due(self, now: float) -> None:
        if self._phase is Phase.PREPARING:
            point = self._restarts.generation_due(now)
            if point is not None:
                self._start_generation(point.checkpoint)
        for spec in self._restarts.waiting:
            self._members.seen(spec, now)  # it cannot show signs of life yet
        for item in self._restarts.roles_due(now) if self._phase is Phase.RUNNING else ():
            self._start_replacement(item)

    def _start_replacement(self, item: Replacement) -> None:
        spec, checkpoint = item.spec, item.point.checkpoint
        if checkpoint is None and spec.role is Role.SERVER:
            # There is nothing to return to, so all start again; that is the same restart.
            self._restarts.take_back()
            self._members[spec].exited = True
            self._settle(item.failure)
            return
        self._generation.starts(spec, checkpoint)
        self._agents.start_roles(spec.node, [spec], checkpoint)

    def _notice_agents(self, now: float) -> None:
        lost = self._cluster.failed()
        if lost is not None and self._phase is not Phase.OVER:
            if lost.agent is not None:
                self.emit("worker_lost", **self._agents.describe(lost.agent, lost))
            self._begin_anew(lost.reason)
            self._agents.start_again()
        self._agents.tick(now, gathering=self._phase is Phase.GATHERING)

    def _notice_stalls(self, now: float) -> None:
        if self._phase is Phase.RUNNING:
            for failure in self._vigil.failures(self._members, now):
                self._failed(failure)

    def _show_stacks(self, spec: RoleSpec, reason: str) -> None:
        self.emit("warning", text=f"the Python stacks of {spec.name} follow: {reason}")
        self._server.send(self._agents.peers[spec.node], ShowStacks(spec))

    def _notice_ends(self, now: float) -> None:
        for spec in [spec for spec, until in self._last_words.items() if now >= until]:
            del self._last_words[spec]
            self._failed(failures.of_exit(spec, 0))
        if self._phase is Phase.RUNNING and self._members.all_exited() and not self._last_words:
            self._phase = Phase.RUNNING if self._agents.carrying else Phase.OVER

    def _notice_signals(self, now: float) -> None:
        if self._phase in (Phase.ENDING, Phase.OVER):
            return
        wish = self._signals.wish(now, self._recovery.grace_seconds)
        if wish is Wish.STOP and self._phase in (Phase.GATHERING, Phase.PREPARING):
            self._phase = Phase.OVER
        elif wish is Wish.STOP and self._graceful:
            self.emit("warning", text="stopping after this step; once more to end at once")
            self._coordinator.stop()
        elif wish is not Wish.NONE:
            self._end_generation(grace=5.0 if wish is Wish.STOP else 0.0)

    # What is done

    def _begin_anew(self, reason: str) -> None:
        """Agents are gone, and all roles with them: wait for new ones, if that may be."""
        if self._signals.count or not self._restarts.left:
            raise WorkerLostError(f"an agent ended before its time: {reason}")
        self._agents.forget()
        self._restarts.cancel()
        self._generation.number += 1
        self._phase = Phase.GATHERING
        self._restarts.decide(self._generation.number, reason, time.monotonic())

    def _start_if_complete(self) -> None:
        if self._phase is Phase.GATHERING and self._agents.complete:
            for kind, fields in self._agents.begin(self._topology.labels):
                self.emit(kind, **fields)
            self._plan_generation()

    def _plan_generation(self) -> None:
        """Start one as soon as it is known what from, and its delay is over."""
        self._phase = Phase.PREPARING
        self._restarts.plan_generation(first=self._generation.number == 0)

    def _start_generation(self, checkpoint: str | None) -> None:
        self._failures.clear()
        self._last_words.clear()
        number = self._generation.number
        self._coordinator.begin(number)
        self._rendezvous.begin(number)
        self._vigil.begin()
        specs = self._topology.place(self._cluster.agents, number)
        everybody = [spec for roles in specs.values() for spec in roles]
        self._generation = self._make_generation(number, everybody, checkpoint)
        self._phase = Phase.RUNNING
        self.emit("generation", number=number)
        for agent, roles in specs.items():
            self._agents.start_roles(agent, roles, checkpoint)

    def _make_generation(
        self, number: int, specs: Iterable[RoleSpec], checkpoint: str | None
    ) -> Generation:
        return Generation(number, specs, checkpoint, self._server, self._coordinator.joined)

    def _end_generation(self, grace: float) -> None:
        self._phase = Phase.ENDING
        for spec in self._restarts.waiting:
            self._members[spec].exited = True  # it has not started
        self._restarts.cancel()
        self._agents.tell_all(EndRoles(self._generation.number, grace))

    def _act_on_failure(self) -> None:
        if not self._failures or self._signals.count:
            self._phase = Phase.OVER
            return
        root = failures.root_cause(self._failures)
        if root.cause is not failures.Cause.USER_ERROR:
            self._tell_of(root.spec, "worker_lost", reason=root.message, cause=root.cause.label)
        if not self._restarts.allow(root):
            self._outcome.failure = root
            self._phase = Phase.OVER
            return
        self._generation.number += 1
        self._restarts.decide(self._generation.number, root.message, time.monotonic())
        self._plan_generation()

    def _shutdown(self) -> None:
        self._restarts.close()
        self._agents.wait_for_all(seconds=10)
        self._agents.tell_all(Shutdown())
        try:
            self._cluster.stop()
        finally:
            self._server.close()

    # What is offered to whoever conducts

    def send(self, spec: RoleSpec, message: Messages, buffers: Sequence[Any] = ()) -> None:
        """See `Stage`."""
        self._generation.send(spec, message, buffers)

    def send_peer(self, peer: bytes, message: Messages) -> None:
        """See `Stage`."""
        self._server.send(peer, message)

    def roles(self, role: Role) -> list[RoleSpec]:
        """See `Stage`."""
        return self._generation.roles(role)

    def emit(self, kind: str, **fields: Any) -> None:
        """See `Stage`."""
        self._observer.observe(Event(kind, time.time(), fields))

    def _tell_of(self, spec: RoleSpec, kind: str, **fields: Any) -> None:
        self.emit(kind, rank=spec.rank, role=spec.kind, **fields)

    def fail(self, text: str) -> None:
        """See `Stage`."""
        spec = self._members.group()[0].spec
        self._failed(Failure(spec, failures.Cause.USER_ERROR, text, error="JobFailedError"))
