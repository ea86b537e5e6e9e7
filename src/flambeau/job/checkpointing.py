"""What a worker saves and how it goes on from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path, parse_reference, resolve
from flambeau.checkpoint.saver import CheckpointSaver
from flambeau.checkpoint.store import TrainingState, newest_readable, read_checkpoint
from flambeau.checkpoint.weights import load_all_weights, load_weights
from flambeau.config import JobSettings
from flambeau.errors import CheckpointError, ModelError
from flambeau.strategies.group import Group
from flambeau.training import randomness
from flambeau.training.loop import Trainer, TrainingParts
from flambeau.training.position import Position


def find_checkpoint(
    run: RunDirectory, group: Group, warn: Callable[[str], None]
) -> TrainingState | None:
    """The newest readable checkpoint; the first worker chooses, so that all take the same."""
    state = newest_readable(run, warn) if group.first else None
    step = torch.tensor([-1 if state is None else state.step])
    chosen = int(group.broadcast(step))
    if chosen < 0 or group.first:
        return state
    return read_checkpoint(checkpoint_path(run, chosen))


@final
class WorkerCheckpoints:
    """Collects the state of all workers at a moment; the first one writes it in the background."""

    def __init__(self, run: RunDirectory, settings: JobSettings, parts_of: TrainingParts) -> None:
        self._run, self._settings, self._parts = run, settings, parts_of
        self._saver = (
            CheckpointSaver(run, settings.checkpoints.keep, for_evaluator=settings.evaluator)
            if parts_of.group.first
            else None
        )
        self.trainer: Trainer | None = None

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        """See `training.loop.Saving`."""
        assert self.trainer is not None
        generators = self._parts.group.gather(randomness.save())
        if self._saver is None:
            return
        position = self.trainer.position
        state = TrainingState(
            step=position.step,
            epoch=position.epoch,
            workers=self._parts.group.size,
            model=dict(self._parts.model.state_dict()),
            extra=self._extra(generators),
            metrics=metrics,
        )
        tracked = self.trainer.best
        value = tracked.value if tracked is not None else None
        mark = (tracked.metric, value) if best and tracked and value is not None else None
        self._saver.save(state, mark)
        path = checkpoint_path(self._run, position.step)
        self._parts.report("checkpoint", step=position.step, path=str(path))
        if mark is not None:
            self._parts.report("best", step=position.step, metric=mark[0], value=mark[1])

    def close(self) -> None:
        """Wait until everything is on disk."""
        if self._saver is not None:
            self._saver.close()

    def _extra(self, generators: list[bytes]) -> dict[str, Any]:
        assert self.trainer is not None
        parts, trainer = self._parts, self.trainer
        return {
            "position": trainer.position.dump(),
            "batch_size": self._settings.batch_size,
            "optimizers": {name: o.state_dict() for name, o in parts.optimizers.items()},
            "schedules": {name: s.state_dict() for name, s in parts.schedules.items()},
            "generators": [torch.frombuffer(bytearray(g), dtype=torch.uint8) for g in generators],
            "best": trainer.best.dump() if trainer.best else None,
            "patience": trainer.patience.dump() if trainer.patience else None,
            "metrics": trainer.metrics,
            "history": trainer.history,
        }


def restore_model(parts: TrainingParts, state: TrainingState) -> None:
    """Weights, optimizers and schedules as they were."""
    load_all_weights(parts.model, state.model)
    for name, optimizer in parts.optimizers.items():
        optimizer.load_state_dict(state.extra["optimizers"][name])
    for name, schedule in parts.schedules.items():
        schedule.load_state_dict(state.extra["schedules"][name])


def restored_position(state: TrainingState, workers: int, *, by_row: bool) -> Position:
    """Where to go on; with another number of workers at the same row, or at the epoch's start."""
    position = Position(**state.extra["position"])
    if state.workers != workers:
        position.change_workers(by_row=by_row)
    return position


def restore_progress(trainer: Trainer, state: TrainingState, rank: int, workers: int) -> None:
    """Best values, patience and random generators as they were."""
    extra = state.extra
    trainer.metrics, trainer.history = extra["metrics"], extra["history"]
    if trainer.best is not None and extra["best"] is not None:
        trainer.best.load(extra["best"])
    if trainer.patience is not None and extra["patience"] is not None:
        trainer.patience.load(extra["patience"])
    if state.workers == workers:
        randomness.restore(extra["generators"][rank].numpy().tobytes())


def load_initial_weights(
    model: torch.nn.Module, reference: str, patterns: list[str] | None, warn: Callable[[str], None]
) -> None:
    """Start from another run's weights; what did not fit is said, nothing fitting is an error."""
    path, which = parse_reference(reference)
    run = RunDirectory(path)
    if not Path(path).is_dir():
        raise CheckpointError(f"init_from: there is no run {path}")
    report = load_weights(model, read_checkpoint(resolve(run, which)).model, patterns)
    if not report.loaded:
        raise ModelError(f"init_from={reference}: nothing in it fits the model:\n{report}")
    if not report.complete:
        warn(f"init_from={reference}: not everything fits:\n{report}")
