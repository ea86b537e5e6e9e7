"""The controller of a job: it starts roles through agents, watches them, and acts on decisions."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import final, get_args

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Recovery
from flambeau.coordination import failures
from flambeau.coordination.file_messages import (
    AgentBeat,
    AgentJoined,
    FilePart,
    FilesSent,
    Spooled,
)
from flambeau.coordination.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
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
from flambeau.driver.control.agents import TICK_SECONDS
from flambeau.driver.control.lost_agents import LostAgents
from flambeau.driver.control.phases import Action, Phase, Trigger
from flambeau.driver.control.restarts import Replacement
from flambeau.driver.control.running_job import RunningJob
from flambeau.driver.control.signals import Wish
from flambeau.driver.control.stacks_requests import StacksRequests
from flambeau.driver.control.stall_watch import StallWatch
from flambeau.driver.outcome import Outcome
from flambeau.driver.topology import Topology
from flambeau.messaging import Envelope, Server, new_secret
from flambeau.observe import Observer

#: How long to wait after a first failure for others that may explain it better.
SETTLE_SECONDS = 1.0
#: How long scripts have to exit on request, and agents to report that processes have ended.
SCRIPT_SECONDS = 5.0
END_SECONDS = 30.0
#: Messages that may lead to another phase, which is checked once no other message waits.
BRINGS_CHANGE = (AgentJoined, Spooled, FilesSent, RoleFailed, RoleDone, RoleExited)
#: `isinstance` takes several times longer with a union than with a tuple.
_FROM_ROLE, _FROM_WORKER, _FROM_SHARD = map(get_args, (FromRole, FromWorker, FromShard))
#: If a tick is later than this, this process was paused, and its messages have waited meanwhile.
HELD_UP_SECONDS = 1.0


@final
class Controller:
    """The coordinator's loop, which follows the table of `phases`.

    It runs in the thread that calls `run`. Only simulations pass `server` and `clock`.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        observer: Observer,
        recovery: Recovery,
        *,
        graceful: bool,
        server: Server[Messages] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._graceful, self.secret = graceful, new_secret()
        self._server = server or Server(
            CODEC, self.secret, cluster.coordinator_host, max_bytes=MAX_FRAME_BYTES
        )
        self._job = RunningJob(topology, cluster, observer, recovery, self._server, clock)
        self._job.actions = {
            Action.CHOOSE_START: self._choose_start,
            Action.START_ROLES: self._start_roles,
            Action.WAIT_FOR_CAUSE: self._wait_for_cause,
            Action.END_ROLES: self._end_roles,
            Action.LOSE_AGENTS: self._lose_stuck_agents,
            Action.REPORT_LATE: self._report_late,
            Action.ASK_TO_STOP: self._ask_to_stop,
        }
        self._lost = LostAgents(self._job)
        self._rendezvous = Rendezvous(self._server.send)
        self._last_words: dict[RoleSpec, float] = {}
        self._stall_watch = StallWatch(recovery, self._show_stacks, clock())
        self._stacks_requests = StacksRequests(topology.stacks_request, self._show_stacks)
        self._ticked = clock()

    @property
    def address(self) -> str:
        """The address at which agents and roles connect to the coordinator."""
        return self._server.address

    def run(self, launch: Launch) -> Outcome:
        """Start the agents and run the job to its end. No process of the job is left afterwards."""
        with self._job.signals.caught():
            try:
                self._job.agents.start(launch)
                if places := self._job.cluster.places():
                    self._job.emit("places", places=places)
                while self._job.phase is not Phase.OVER:
                    self._handle_messages()
                    self._tick()
            finally:
                self._shutdown()
        self._job.outcome.interrupted = self._job.signals.last
        self._job.outcome.restarts = self._job.restarts.count
        self._job.outcome.coordinator_summary = self._job.coordinator.summary()
        self._job.outcome.rows = self._job.coordinator.rows()
        self._job.outcome.places = self._job.cluster.places()
        return self._job.outcome

    # Messages
    def _handle_messages(self) -> None:
        """Handle messages until a tick is due: after `TICK_SECONDS`, or soon after a change."""
        until, changed = self._job.clock() + TICK_SECONDS, False
        while (left := until - self._job.clock()) > 0:
            envelope = self._server.receive(0 if changed else left)
            if envelope is None:
                return
            self._handle(envelope)
            changed = changed or isinstance(envelope.message, BRINGS_CHANGE)

    def _handle(self, envelope: Envelope[Messages]) -> None:
        message = envelope.message
        if isinstance(message, _FROM_WORKER):
            if self._is_current(message.spec):
                self._job.coordinator.handle(envelope.peer, message, envelope.buffers)
        elif isinstance(message, _FROM_SHARD):
            self._job.coordinator.handle(envelope.peer, message, envelope.buffers)
        elif isinstance(message, _FROM_ROLE):
            if self._is_current(message.spec):
                self._handle_role(envelope.peer, message)
        elif isinstance(message, AgentJoined):
            self._admit(envelope.peer, message)
        elif isinstance(message, AgentBeat):
            self._job.agents.beat(message)
        elif isinstance(message, Spooled | FilePart | FilesSent):
            if self._job.agents.sent(envelope.peer):  # not from an agent that counts as lost
                self._job.agents.take(message, envelope.buffers)
        elif isinstance(message, RoleOutput):
            for line in message.lines:
                self._job.emit_of(message.spec, "log", stream=message.stream, text=line)
        elif isinstance(message, StoreRequest):
            self._rendezvous.handle(envelope.peer, message, envelope.buffers)

    def _admit(self, peer: bytes, message: AgentJoined) -> None:
        self._job.agents.require_known(message.agent)
        if not self._lost.may_join(message.agent):
            self._server.send(peer, Shutdown())
            return
        if self._job.agents.is_present(message.agent):
            reason = "the cluster has started it again"
            self._lost.lose([AgentEnded(reason, message.agent)], restart=False)
        self._job.agents.joined(message, peer)

    def _is_current(self, spec: RoleSpec) -> bool:
        """Record a sign of life of a role; return False if it is not of the current generation."""
        current = spec in self._job.members
        if current:
            self._job.members.seen(spec, self._job.clock())
        return current

    def _handle_role(self, peer: bytes, message: FromRole) -> None:
        if isinstance(message, RoleJoined):
            self._job.generation.joined(peer, message, self._job.clock())
        elif isinstance(message, Heartbeat):
            self._stall_watch.beat(message, self._job.clock())
        elif isinstance(message, ServerReady):
            self._job.generation.server_ready(message)
        elif isinstance(message, Report):
            self._report(peer, message)
        elif isinstance(message, RoleFailed):
            self._job.emit_of(message.spec, "exception", **failures.exception_fields(message))
            self._job.failed(failures.of_exception(message))
        elif isinstance(message, RoleDone):
            self._done(message)
        elif isinstance(message, RoleExited):
            self._exited(message)

    def _report(self, peer: bytes, message: Report) -> None:
        if message.kind == "pulse":
            self._job.coordinator.handle(peer, message, ())
        elif message.kind == "saved":
            self._job.agents.saved(**message.fields)
        else:
            self._job.emit(message.kind, **message.fields)

    def _done(self, message: RoleDone) -> None:
        self._job.members[message.spec].done = True
        self._last_words.pop(message.spec, None)
        if message.spec.role.in_group:
            self._job.outcome.summaries[message.spec.rank] = message.summary
            self._job.outcome.status = message.status
        elif message.spec.role is Role.SERVER:
            self._job.outcome.servers[message.spec.rank] = message.summary

    def _release_when_done(self) -> None:
        """Stop the evaluator and the servers once all workers are done."""
        if self._job.members.group_done() and not self._job.generation.released:
            self._job.generation.released = True
            for spec in (*self._job.roles(Role.EVALUATOR), *self._job.roles(Role.SERVER)):
                self._job.send(spec, Stop())

    def _exited(self, message: RoleExited) -> None:
        member = self._job.members[message.spec]
        member.exited = True
        reported = any(failure.spec == message.spec for failure in self._job.failures)
        expected = member.done or reported or self._job.phase is Phase.ENDING
        if expected or (message.code == 0 and self._job.topology.role is Role.SCRIPT):
            return
        if message.code == 0:
            # The agent's message can arrive before the role's own, which use another connection.
            self._last_words[message.spec] = self._job.clock() + SETTLE_SECONDS
        else:
            self._job.failed(failures.of_exit(message.spec, message.code, message.out_of_memory))

    # Periodic work
    def _tick(self) -> None:
        now = self._job.clock()
        held_up, self._ticked = now - self._ticked, now
        if held_up > HELD_UP_SECONDS:
            self._job.agents.forgive(held_up)
            self._job.members.forgive(held_up, now)
        self._job.coordinator.tick(now)
        self._stacks_requests.answer(self._job.members, now)
        self._notice_signals(now)
        self._lost.notice()
        self._lost.restart_due()
        self._job.agents.settle()
        self._notice_stalls(now)
        self._notice_ends(now)
        self._start_what_is_due(now)
        everybody = len(self._job.failures) == len(self._job.members.all())
        if self._job.phase is Phase.SETTLING and everybody:
            self._job.deadline = now  # no better explanation will come
        if now >= self._job.deadline:
            self._job.deadline = math.inf
            self._job.trigger(Trigger.LATE)
        if self._job.phase is Phase.ENDING and self._job.members.all_exited():
            self._act_on_end()

    def _start_what_is_due(self, now: float) -> None:
        if self._job.phase is Phase.GATHERING and self._job.agents.complete:
            self._job.trigger(Trigger.COMPLETE)
        if self._job.phase is Phase.PREPARING and self._job.restarts.generation_is_due(now):
            self._job.trigger(Trigger.DUE)
        if self._job.phase is not Phase.RUNNING:
            return
        self._lost.start_returned()
        for spec in (*self._lost.waiting, *self._job.restarts.waiting):
            self._job.members.seen(spec, now)  # it cannot send heartbeats yet
        for item in self._job.restarts.roles_due(now):
            self._start_replacement(item)

    def _start_replacement(self, item: Replacement) -> None:
        spec, checkpoint = item.spec, item.point.checkpoint
        if checkpoint is None and spec.role is Role.SERVER:
            # There is no checkpoint to restore, so all roles restart; this is the same restart.
            if self._job.phase is Phase.RUNNING:  # else another role has already led to this
                self._job.restarts.take_back()
            self._job.members[spec].exited = True
            self._job.failures.append(item.failure)
            self._job.trigger(Trigger.FAILED)
            return
        self._job.generation.starts(spec, checkpoint)
        self._job.coordinator.replaced(spec, checkpoint)
        self._job.agents.start_roles(spec.node, [spec], checkpoint)

    def _notice_stalls(self, now: float) -> None:
        if self._job.phase is Phase.RUNNING:
            for failure in self._stall_watch.failures(self._job.members, now):
                self._job.failed(failure)

    def _show_stacks(self, spec: RoleSpec, reason: str) -> None:
        self._job.emit("warning", text=f"the Python stacks of {spec.name} follow: {reason}")
        self._job.agents.send(spec.node, ShowStacks(spec))

    def _notice_ends(self, now: float) -> None:
        for spec in [spec for spec, until in self._last_words.items() if now >= until]:
            del self._last_words[spec]
            self._job.failed(failures.of_exit(spec, 0))
        if self._job.phase is Phase.RUNNING:
            self._release_when_done()
        done = self._job.phase is Phase.RUNNING and self._job.members.all_exited()
        if done and not self._last_words and not self._job.agents.carrying:
            self._job.trigger(Trigger.FINISHED)

    def _notice_signals(self, now: float) -> None:
        wish = self._job.signals.wish(now, self._job.recovery.grace_seconds)
        if wish is not Wish.NONE:
            stops = wish is Wish.STOP and self._graceful
            self._job.trigger(Trigger.STOP if stops else Trigger.END)

    # Actions, see `phases`
    def _choose_start(self) -> None:
        for kind, fields in self._job.agents.begin(self._job.topology.labels):
            self._job.emit(kind, **fields)
        self._job.restarts.plan_generation(first=self._job.generation.number == 0)

    def _start_roles(self) -> None:
        checkpoint = self._job.restarts.take_generation().checkpoint
        self._job.failures.clear()
        self._last_words.clear()
        number = self._job.generation.number
        self._job.coordinator.begin(number)
        self._rendezvous.begin(number)
        self._stall_watch.begin(self._job.clock())
        specs = self._job.topology.place(self._job.agents.places, number)
        everybody = [spec for roles in specs.values() for spec in roles]
        self._job.begin_generation(number, everybody, checkpoint)
        started = [self._job.agents.start_fields(agent, roles) for agent, roles in specs.items()]
        self._job.emit("generation", number=number, started=started)
        for agent, roles in specs.items():
            self._job.agents.start_roles(agent, roles, checkpoint)

    def _wait_for_cause(self) -> None:
        self._job.deadline = self._job.clock() + SETTLE_SECONDS

    def _end_roles(self) -> None:
        asks = self._job.topology.role is Role.SCRIPT and self._job.signals.count <= 1
        grace = SCRIPT_SECONDS if asks else 0.0
        self._job.deadline = self._job.clock() + grace + END_SECONDS
        for spec in self._job.restarts.waiting:
            self._job.members[spec].exited = True  # it has not started
        self._lost.forget()
        self._job.restarts.cancel()
        self._job.agents.send_all(EndRoles(self._job.generation.number, grace))

    def _lose_stuck_agents(self) -> None:
        agents = {member.spec.node for member in self._job.members.all() if not member.exited}
        reason = f"its processes have not ended within {END_SECONDS:g} s"
        self._lost.lose([AgentEnded(reason, agent) for agent in sorted(agents)])

    def _report_late(self) -> None:
        late = self._job.agents.overdue()
        self._job.agents.give_up(late)
        raise self._job.cluster.late(late)

    def _ask_to_stop(self) -> None:
        self._job.emit("warning", text="stopping after this step; interrupt again to stop at once")
        self._job.coordinator.stop()

    def _act_on_end(self) -> None:
        """Decide whether to restart, now that no process of the generation is left."""
        if self._job.signals.count or self._job.outcome.failure is not None:
            self._job.trigger(Trigger.FOR_GOOD)
        elif self._lost.again or self._decide_on_failure():
            self._lost.replace_missing()
            self._job.generation.number += 1
            self._job.trigger(Trigger.AGAIN)
        else:
            self._job.trigger(Trigger.FOR_GOOD)

    def _decide_on_failure(self) -> bool:
        """Return whether the job restarts after a role has failed."""
        root = failures.root_cause(self._job.failures)
        if root.cause is not failures.Cause.USER_ERROR:
            self._job.emit_of(root.spec, "worker_lost", reason=root.message, cause=root.cause.label)
        if not self._job.restarts.allow(root):
            place = self._job.agents.place_of(root.spec.node)
            self._job.outcome.failure = dataclasses.replace(root, place=place)
            return False
        self._job.restarts.decide(self._job.generation.number + 1, root.message, self._job.clock())
        return True

    def _shutdown(self) -> None:
        signals = self._job.signals.count
        self._job.restarts.close()
        self._job.agents.wait_for_all(10, lambda: self._job.signals.count > signals)
        self._job.agents.send_all(Shutdown())
        try:
            self._job.cluster.stop()
        finally:
            self._server.close()
