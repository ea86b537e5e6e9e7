"""A running job: its phase, its current generation, and how it handles roles that fail."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import msgspec

from flambeau.clusters.base import Cluster
from flambeau.config import Recovery
from flambeau.coordination import failures
from flambeau.coordination.failures import Failure
from flambeau.coordination.membership import Membership
from flambeau.coordination.protocol import EndRole, Messages
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.agents import Agents
from flambeau.driver.control.generation import Generation
from flambeau.driver.control.phases import Action, Phase, Trigger, move
from flambeau.driver.control.restarts import Restarts
from flambeau.driver.control.signals import Signals
from flambeau.driver.coordinators import PassiveCoordinator, Stage
from flambeau.driver.outcome import Outcome
from flambeau.driver.topology import Topology
from flambeau.messaging import Server
from flambeau.observe import Event, Observer


@final
class RunningJob(Stage):
    """The state that the controller and its parts share. `actions` maps actions to functions."""

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        observer: Observer,
        recovery: Recovery,
        server: Server[Messages],
        clock: Callable[[], float],
    ) -> None:
        self.topology, self.cluster, self.recovery = topology, cluster, recovery
        self._observer, self._server, self.clock = observer, server, clock
        self.phase = Phase.GATHERING
        #: When the current phase times out.
        self.deadline = math.inf
        self.actions: dict[Action, Callable[[], None]] = {}
        self.agents = Agents(cluster, server, topology.carrier, clock)
        self.restarts = Restarts(topology.starts, recovery.max_restarts, self.emit)
        self.signals, self.outcome = Signals(cluster.signal_repeats_seconds), Outcome()
        #: Failures of the generation; one of them is the cause of the others.
        self.failures: list[Failure] = []
        self.coordinator = topology.coordinator or PassiveCoordinator(topology.role)
        self.coordinator.attach(self)
        self.begin_generation(0, (), None)

    def trigger(self, trigger: Trigger) -> None:
        """Make the transition that the table in `phases` has for a trigger."""
        action, phase = move(self.phase, trigger)
        if phase is not self.phase:
            self.phase, self.deadline = phase, math.inf
        if action is not Action.NOTHING:
            self.actions[action]()

    def begin_generation(
        self, number: int, specs: Iterable[RoleSpec], checkpoint: str | None
    ) -> None:
        """Replace the previous generation by one of these roles, which are about to be started."""
        began, now = self.coordinator.joined, self.clock()
        self.generation = Generation(number, specs, checkpoint, self._server, began, now)

    @property
    def members(self) -> Membership:
        """The roles of the generation."""
        return self.generation.members

    # Roles that fail

    @property
    def is_elastic(self) -> bool:
        """Return whether the other roles would continue if a role were lost now."""
        running = self.phase is Phase.RUNNING and self.generation.begun
        return running and self.coordinator.elastic and not self.signals.count

    def failed(self, failure: Failure) -> None:
        """Replace a role that has failed, or end the generation."""
        now = self.clock()
        if self.phase is Phase.RUNNING and self._can_replace(failure, now):
            self._replace(failure, now)
        elif self.phase in (Phase.RUNNING, Phase.SETTLING):
            if self.is_elastic and self.restarts.is_counted(failure.spec, now):
                self.restarts.take_back()  # all roles restart, for the same reason
            self.failures.append(failure)
            self.trigger(Trigger.FAILED)

    def _can_replace(self, failure: Failure, now: float) -> bool:
        # A server needs a checkpoint to be restored from; before the first, all roles restart.
        saved = failure.spec.role is not Role.SERVER or self.restarts.can_restore_servers
        together = failure.cause is failures.Cause.DEADLOCK
        elastic = self.is_elastic and saved and not together
        return elastic and self.restarts.allow_role(failure, now)

    def _replace(self, failure: Failure, now: float) -> None:
        lost = failure.spec
        self.emit_of(lost, "worker_lost", reason=failure.message, cause=failure.cause.label)
        spec = self.make_room(lost)
        self.agents.send(lost.node, EndRole(lost))
        self.restarts.replace(failure, spec, now)

    def make_room(self, lost: RoleSpec) -> RoleSpec:
        """Return the replacement of a lost role, whose messages are ignored from now on."""
        spec = msgspec.structs.replace(lost, attempt=lost.attempt + 1)
        self.generation.replace(lost, spec, self.clock())
        self.coordinator.lost(lost)
        return spec

    # The interface for coordinators
    def send(self, spec: RoleSpec, message: Messages, buffers: Sequence[Any] = ()) -> None:
        """See `Stage`."""
        self.generation.send(spec, message, buffers)

    def send_peer(self, peer: bytes, message: Messages) -> None:
        """See `Stage`."""
        self._server.send(peer, message)

    def roles(self, role: Role) -> list[RoleSpec]:
        """See `Stage`."""
        return self.generation.roles(role)

    def emit(self, kind: str, **fields: Any) -> None:
        """See `Stage`."""
        self._observer.observe(Event(kind, time.time(), fields))

    def emit_of(self, spec: RoleSpec, kind: str, **fields: Any) -> None:
        """Emit an event about a role."""
        self.emit(kind, rank=spec.rank, role=spec.kind, **fields)

    def fail(self, text: str) -> None:
        """See `Stage`."""
        spec = self.members.group()[0].spec
        self.failed(Failure(spec, failures.Cause.USER_ERROR, text, error="JobFailedError"))
