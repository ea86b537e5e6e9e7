"""Evaluations and checkpoints of a training, the best metric, and early stopping."""

import time
from typing import Any, final

from flambeau.config import JobSettings
from flambeau.training.best import Best
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position
from flambeau.training.schedules import LearningRate


@final
class Milestones:
    """Record of evaluations and checkpoints. All workers call it at the same positions."""

    def __init__(
        self, settings: JobSettings, parts: TrainingParts, position: Position, best: Best | None
    ) -> None:
        self._parts, self._stopping = parts, settings.early_stopping
        self.position, self.best = position, best
        stopping = settings.early_stopping
        self.patience = (
            Best(stopping.metric, stopping.mode, stopping.min_delta) if stopping else None
        )
        self.metrics: dict[str, float] = {}
        self.history: list[dict[str, Any]] = []
        self._saved: tuple[int, bool] | None = None

    @property
    def finished_early(self) -> bool:
        """Return whether the metric of early stopping reached its target, or no longer improves."""
        stopping, patience = self._stopping, self.patience
        if stopping is None or patience is None:
            return False
        # Evaluations before a run was resumed may lack the metric that is watched now.
        target = stopping.target if stopping.metric in self.metrics else None
        if target is not None and patience.reaches(target, self.metrics):
            return True
        return stopping.limit is not None and patience.stale >= stopping.limit

    def restored(self) -> None:
        """Record that a checkpoint of the current position already exists."""
        self._saved = self._state_to_save()

    def evaluate(self) -> None:
        """Evaluate, unless this step has been evaluated; save a new best."""
        parts, position = self._parts, self.position
        if parts.evaluate is None or self._is_evaluated():
            return
        started = time.perf_counter()
        parts.strategy.synchronize()
        scores = parts.evaluate()
        self.metrics = scores.metrics
        where = {"step": position.step, "epoch": position.epoch}
        self.history.append({**where, **scores.metrics})
        if parts.group.first:
            parts.report(
                "evaluation",
                **where,
                metrics=scores.metrics,
                rows=scores.rows,
                seconds=time.perf_counter() - started,
            )
        parts.callbacks.on_evaluation(parts.view, scores.metrics)
        self._judge(scores.metrics)

    def checkpoint(self, *, best: bool = False) -> None:
        """Save a checkpoint, unless this state has been saved."""
        state = self._state_to_save()
        if self._saved == state and not best:
            return
        self._saved = state
        self._parts.strategy.synchronize()
        self._parts.saving.save(self.metrics if self._is_evaluated() else {}, best=best)

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "best": self.best.dump() if self.best else None,
            "patience": self.patience.dump() if self.patience else None,
            "metrics": self.metrics,
            "history": self.history,
            "saved": list(self._saved) if self._saved is not None else None,
            "watching": {name: each.state_dict() for name, each in self._watching().items()},
        }

    def load(self, values: dict[str, Any]) -> None:
        """Restore the state from a dump."""
        self.metrics, self.history = values["metrics"], values["history"]
        if self.best is not None and values["best"] is not None:
            self.best.load(values["best"])
        if self.patience is not None and values["patience"] is not None:
            self.patience.load(values["patience"])
        for name, schedule in self._watching().items():
            if name in values.get("watching", {}):
                schedule.load_state_dict(values["watching"][name])
        if "saved" in values:
            # A replacement worker must save when the others do, and only then.
            self._saved = values["saved"] and (values["saved"][0], values["saved"][1])

    def _is_evaluated(self) -> bool:
        """Return whether this step has been evaluated, possibly before the run was resumed."""
        return bool(self.history) and self.history[-1]["step"] == self.position.step

    def _state_to_save(self) -> tuple[int, bool]:
        """Return what makes a checkpoint worth writing: a new step, or metrics of the same one."""
        return self.position.step, self._is_evaluated()

    def _watching(self) -> dict[str, LearningRate]:
        """Return the schedules that depend on evaluations."""
        return {name: each for name, each in self._parts.schedules.items() if each.watches}

    def _judge(self, metrics: dict[str, float]) -> None:
        # First update the state that is saved: a resumed run does not evaluate this step again.
        for schedule in self._watching().values():
            schedule.evaluated(metrics)
        if self.patience is not None:
            self.patience.improves(metrics)
        if self.best is not None and self.best.improves(metrics):
            self.checkpoint(best=True)
