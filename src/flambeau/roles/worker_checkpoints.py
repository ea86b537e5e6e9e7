"""Checkpoints of a worker: how it saves them and resumes from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path, parse_reference, resolve
from flambeau.checkpoint.saver import CheckpointSaver
from flambeau.checkpoint.store import TrainingState, read_checkpoint
from flambeau.checkpoint.weights import load_all_weights, load_weights
from flambeau.config import JobSettings
from flambeau.coordination.activity import stores
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import InitialWeights
from flambeau.coordination.task_messages import SyncPoint
from flambeau.embeddings.attach import has_tables
from flambeau.errors import CheckpointError, ModelError
from flambeau.roles.worker_context import WorkerContext
from flambeau.strategies.base import TableCheckpoints
from flambeau.training import randomness
from flambeau.training.milestones import Milestones
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position


def starting_state(run: RunDirectory, coordinator: CoordinatorClient) -> TrainingState | None:
    """Return the state from which the coordinator starts all roles; None: from the beginning."""
    name = coordinator.wait_until_all_joined().checkpoint
    return None if name is None else read_checkpoint(run.checkpoints / name)


#: How often saving the last checkpoint is retried if servers are lost again and again.
ATTEMPTS = 5


@final
class WorkerCheckpoints:
    """A saver of all workers' state at one step, which the first one writes in the background."""

    def __init__(
        self,
        run: RunDirectory,
        settings: JobSettings,
        parts_of: TrainingParts,
        tables: TableCheckpoints,
        frames_digest: str = "",
    ) -> None:
        self._run, self._settings, self._parts = run, settings, parts_of
        self._frames_digest = frames_digest
        self._tables = tables
        self._saver = (
            CheckpointSaver(
                run,
                settings.checkpoints.keep,
                for_evaluator=settings.evaluator,
                on_saved=lambda step, best: parts_of.report("saved", step=step, best=best),
                on_lost=self._give_up,
            )
            if parts_of.group.first
            else None
        )
        #: Arguments of the last save, and whether that checkpoint was lost with a server.
        self._last: tuple[list[bytes], dict[str, float], bool] | None = None
        self._lost = False
        self.milestones: Milestones | None = None
        self._dropped_before = 0
        self._plan: dict[str, Any] = {}

    def follow(self, milestones: Milestones) -> None:
        """Set the milestones whose progress is saved."""
        self.milestones = milestones
        self._dropped_before = milestones.position.dropped

    def at(self, sync_point: SyncPoint) -> None:
        """Record the work left for asynchronous workers at a sync point that may be saved."""
        self._plan = sync_point.plan

    @property
    def dropped(self) -> int:
        """Number of rows of the whole run whose gradients were left out."""
        return self._dropped_before + self._parts.strategy.dropped_rows

    @stores
    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        """See `training.milestones.Saving`."""
        group = self._parts.group
        generators = group.gather(randomness.save())
        if self._saver is not None:
            self._save(generators, metrics, best)
        if self._tables.shared:
            group.gather(b"")  # no worker continues before the servers have fixed their state

    def _save(self, generators: list[bytes], metrics: dict[str, float], best: bool) -> None:
        assert self.milestones is not None
        assert self._saver is not None
        self._saver.wait()
        self._last, self._lost = (generators, metrics, best), False
        position, tracked = self.milestones.position, self.milestones.best
        position.dropped = self.dropped
        state = TrainingState(
            step=position.step,
            epoch=position.epoch,
            workers=self._parts.group.size,
            model=dict(self._parts.model.state_dict()),
            extra=self._extra(generators),
            metrics=metrics,
        )
        value = tracked.value if tracked is not None else None
        mark = (tracked.metric, value) if best and tracked and value is not None else None
        self._saver.save(state, mark, None if self._tables.empty else self._tables.begin)
        path = checkpoint_path(self._run, position.step)
        self._parts.report("checkpoint", step=position.step, path=str(path))
        if mark is not None:
            self._parts.report("best", step=position.step, metric=mark[0], value=mark[1])

    def _extra(self, generators: list[bytes]) -> dict[str, Any]:
        assert self.milestones is not None
        parts = self._parts
        return {
            "position": self.milestones.position.dump(),
            "batch_size": self._settings.batch_size,
            "optimizers": {name: o.state_dict() for name, o in parts.optimizers.items()},
            "schedules": {name: s.state_dict() for name, s in parts.schedules.items()},
            "generators": [torch.frombuffer(bytearray(g), dtype=torch.uint8) for g in generators],
            "plan": self._plan,
            "frames_digest": self._frames_digest,
            **self.milestones.dump(),
        }

    def _give_up(self, step: int, reason: str) -> None:
        self._lost = True
        text = f"the checkpoint of step {step} was not written: {reason}; another one will be"
        self._parts.report("warning", text=text)

    @stores
    def complete(self) -> None:
        """Wait until the last checkpoint is on disk; save it again if it was lost with a server."""
        if self._saver is None or self._last is None:
            return
        self._saver.wait()
        left = ATTEMPTS
        while self._lost:
            if not left:
                raise CheckpointError(
                    "the last checkpoint was not written: servers were lost again and again"
                )
            left -= 1
            self._parts.strategy.catch_up()  # waits until all servers are running
            self._save(*self._last)
            self._saver.wait()

    @stores
    def close(self) -> None:
        """Wait until everything is on disk."""
        if self._saver is not None:
            self._saver.close()
        self._tables.close()


def restore_model(parts: TrainingParts, state: TrainingState) -> None:
    """Restore weights, optimizers and schedules."""
    load_all_weights(parts.model, state.model)
    for name, optimizer in parts.optimizers.items():
        optimizer.load_state_dict(state.extra["optimizers"][name])
    for name, schedule in parts.schedules.items():
        schedule.load_state_dict(state.extra["schedules"][name])


def has_other_frames(state: TrainingState, context: WorkerContext) -> bool:
    """Return whether the rows of data frames differ from those of a checkpoint; warn if so."""
    if state.extra.get("frames_digest", "") == context.site.frames_digest:
        return False
    context.warn(
        "the data frame does not have the rows that it had at the checkpoint, or not in that order "
        "or division. The run continues with these rows, from the start of an epoch"
    )
    return True


def restored_position(state: TrainingState, context: WorkerContext, *, by_row: bool) -> Position:
    """Return where to resume: at the same step if workers and rows are those of the checkpoint.

    Otherwise, resume at the same row (`by_row`) or at the start of the epoch.
    """
    position = Position(**state.extra["position"])
    other_frames = has_other_frames(state, context)
    if other_frames or state.workers != context.group.size:
        position.change_workers(by_row=by_row)
    return position


def restore_progress(milestones: Milestones, state: TrainingState, rank: int, workers: int) -> None:
    """Restore best values, patience and random generators."""
    milestones.load(state.extra)
    if state.workers == workers:
        randomness.restore(state.extra["generators"][rank].numpy().tobytes())


class NotYet:
    """A placeholder for saving until the parts that it needs exist."""

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        """Raise, since it is too early to save."""
        raise AssertionError("saving before the worker was put together")


def load_initial_weights(
    model: torch.nn.Module, initial: InitialWeights, warn: Callable[[str], None]
) -> None:
    """Load another run's weights; warn of those that do not fit, and raise if none fits."""
    reference = initial.reference
    path, which = parse_reference(reference)
    run = RunDirectory(path)
    if not Path(path).is_dir():
        raise CheckpointError(f"init_from: there is no run {path}")
    report = load_weights(model, read_checkpoint(resolve(run, which)).model, initial.patterns)
    if not report.loaded and (report.missing or not has_tables(model)):
        raise ModelError(f"init_from={reference}: nothing in it fits the model:\n{report}")
    if not report.complete:
        warn(f"init_from={reference}: not everything fits:\n{report}")
