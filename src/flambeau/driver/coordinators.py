"""Coordinators of training: the decisions of the driver while workers train, by strategy."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

from flambeau.config import JobSettings
from flambeau.config.strategies import Hybrid, ParameterServer
from flambeau.coordination import rounds
from flambeau.coordination.consistency import Synchronous
from flambeau.coordination.protocol import Messages, Report, ShardJoined, Stop
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.coordination.round_messages import Commit, NormReply, NormRequest, Staged
from flambeau.coordination.rounds import Rounds
from flambeau.coordination.step_sums import StepSums
from flambeau.coordination.task_messages import StopRequest

PROGRESS_SECONDS = 0.5

Emit = Callable[..., None]


class Stage(ABC):
    """The controller's interface for coordinators: send messages, emit events, end the job."""

    @abstractmethod
    def send(self, spec: RoleSpec, message: Messages, buffers: Sequence[Any] = ()) -> None:
        """Send to a role of the current generation."""

    @abstractmethod
    def send_peer(self, peer: bytes, message: Messages) -> None:
        """Send to a connection."""

    @abstractmethod
    def roles(self, role: Role) -> list[RoleSpec]:
        """Return the roles of one kind that have joined."""

    @abstractmethod
    def emit(self, kind: str, **fields: Any) -> None:
        """Send an event to the observers."""

    @abstractmethod
    def fail(self, text: str) -> None:
        """Fail the job, which cannot continue."""


class TrainingCoordinator(ABC):
    """The decisions of a job, for one generation at a time."""

    #: Whether a lost worker or server is replaced while the others continue.
    elastic = False
    #: Whether the others cannot continue without the first worker.
    needs_first = False

    def __init__(self) -> None:
        self.stopping = False

    def attach(self, stage: Stage) -> None:
        """Set the controller's interface; called once, before all other methods."""
        self.stage = stage

    def begin(self, generation: int) -> None:  # noqa: B027 - optional
        """Prepare for a new generation."""

    def handle(self, peer: bytes, message: Any, buffers: Sequence[Any]) -> None:  # noqa: B027
        """Handle a message that the controller does not handle itself."""

    def joined(self, spec: RoleSpec) -> None:  # noqa: B027 - optional
        """Handle a worker that has joined; in an elastic job it may replace a lost one."""

    def lost(self, spec: RoleSpec) -> None:  # noqa: B027 - optional
        """Handle the loss of a role of an elastic job that will be replaced."""

    def dismissed(self, spec: RoleSpec) -> None:
        """Handle the loss of a worker of an elastic job that will not be replaced."""
        self.lost(spec)

    def replaced(self, spec: RoleSpec, checkpoint: str | None) -> None:  # noqa: B027
        """Handle the start of a lost role's replacement in an elastic job, from a checkpoint."""

    def tick(self, now: float) -> None:  # noqa: B027 - optional
        """Do periodic work; called several times per second."""

    @abstractmethod
    def stop(self) -> None:
        """Make all workers save and exit."""

    def rows(self) -> dict[str, int] | None:
        """Return how many rows were read, applied and so on; None if not counted here."""
        return None

    def summary(self) -> dict[str, Any]:
        """Return fields of the report."""
        return {}


@final
class PassiveCoordinator(TrainingCoordinator):
    """The coordinator of workers that agree without it."""

    def __init__(self, role: Role = Role.WORKER) -> None:
        super().__init__()
        self._role = role

    def stop(self) -> None:
        """Send each worker a stop request; they agree on the step."""
        self.stopping = True
        for spec in self.stage.roles(self._role):
            self.stage.send(spec, Stop())


@final
class RoundCoordinator(TrainingCoordinator):
    """The coordinator of synchronous servers: it closes each round, for all shards at once."""

    def __init__(self, settings: JobSettings, *, tells_progress: bool) -> None:
        super().__init__()
        strategy = settings.strategy
        assert isinstance(strategy, ParameterServer | Hybrid)
        self._workers, self._shards = settings.cluster.workers, strategy.servers
        backup = strategy.backup_workers if isinstance(strategy, ParameterServer) else 0
        skip = isinstance(strategy, ParameterServer) and strategy.non_finite == "skip"
        self._policy = Synchronous(self._workers, backup)
        self._clip_norm = settings.compute.clip_norm
        self._non_finite: Any = "skip" if skip else "fail"
        self._tells_progress = tells_progress
        self.begin(-1)  # `tick` is called before agents have joined, too

    def begin(self, generation: int) -> None:
        """Discard the rounds of the previous generation."""
        self._generation = generation
        self._peers: dict[int, bytes] = {}
        self._rounds: Rounds | None = None
        self._sums = StepSums()
        self._told = time.monotonic()
        self._last: dict[str, Any] = {}

    def handle(self, peer: bytes, message: Any, buffers: Sequence[Any]) -> None:
        """Handle reports of shards and workers."""
        if isinstance(message, ShardJoined) and message.spec.generation == self._generation:
            self._peers[message.spec.rank] = peer
        elif isinstance(message, Staged) and message.generation == self._generation:
            self._act(
                self._rounds_from(message.round).staged(
                    message.round,
                    message.worker,
                    message.shard,
                    message.rows,
                    message.finite,
                    message.planned,
                )
            )
        elif isinstance(message, NormReply) and message.generation == self._generation:
            assert self._rounds is not None
            self._act(self._rounds.summed(message.round, message.shard, message.squares))
        elif isinstance(message, StopRequest):
            self.stop()
        elif isinstance(message, Report) and message.kind == "pulse":
            self._pulse(message.fields)

    def stop(self) -> None:
        """Stop all workers with the next round."""
        self.stopping = True

    def tick(self, now: float) -> None:
        """Report progress."""
        if self._tells_progress and now - self._told >= PROGRESS_SECONDS and self._last:
            self._tell(now)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of rounds without an update and of late gradients."""
        if self._rounds is None:
            return {}
        return {"skipped_rounds": self._rounds.skipped_rounds, "late_gradients": self._rounds.late}

    def _rounds_from(self, start: int) -> Rounds:
        if self._rounds is None:
            self._rounds = Rounds(
                self._workers,
                self._shards,
                self._policy,
                self._clip_norm,
                self._non_finite,
                start=start,
            )
        return self._rounds

    def _act(self, decisions: Sequence[rounds.Decision]) -> None:
        assert self._rounds is not None
        for decision in decisions:
            if isinstance(decision, rounds.Spoiled):
                self.stage.fail(decision.message)
                return
            message: Messages
            members = list(decision.members)
            if isinstance(decision, rounds.AskNorm):
                message = NormRequest(decision.round, members)
            else:
                message = Commit(
                    decision.round,
                    members,
                    decision.scale,
                    decision.apply,
                    self.stopping,
                    self._rounds.dropped_rows,
                )
            for peer in self._peers.values():
                self.stage.send_peer(peer, message)

    def _pulse(self, fields: dict[str, Any]) -> None:
        loss, rows, steps, *seconds = fields["sums"]
        self._sums += StepSums(loss, int(rows), int(steps), *seconds)
        if fields["step"] >= self._last.get("step", 0):
            self._last = fields

    def _tell(self, now: float) -> None:
        sums, elapsed = self._sums, now - self._told
        self._sums, self._told = StepSums(), now
        if sums.rows:
            self.stage.emit(
                "progress",
                step=self._last["step"],
                epoch=self._last["epoch"],
                steps_total=self._last["steps_total"],
                rows=self._last["position_rows"],
                lr=self._last["lr"],
                **sums.progress(elapsed),
            )
