"""Evaluations and checkpoints of a training, and what they lead to: the best, and an early end."""

import time
from typing import Any, final

from flambeau.config import JobSettings
from flambeau.training.best import Best
from flambeau.training.parts import TrainingParts
from flambeau.training.position import Position
from flambeau.training.schedules import LearningRate


@final
class Milestones:
    """What has been reached. All workers call the same methods at the same position."""

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
        """Whether the metric that early stopping watches is good enough, or no longer improves."""
        stopping, patience = self._stopping, self.patience
        if stopping is None or patience is None:
            return False
        # What a resumed run evaluated before need not have the metric that is watched now.
        target = stopping.target if stopping.metric in self.metrics else None
        if target is not None and patience.reaches(target, self.metrics):
            return True
        return stopping.limit is not None and patience.stale >= stopping.limit

    def restored(self) -> None:
        """This position is in a checkpoint already."""
        self._saved = self._state_to_save()

    def evaluate(self) -> None:
        """Evaluate, unless that has been done here; a new best is saved."""
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
        """Save, unless that has been done here."""
        state = self._state_to_save()
        if self._saved == state and not best:
            return
        self._saved = state
        self._parts.strategy.synchronize()
        self._parts.saving.save(self.metrics if self._is_evaluated() else {}, best=best)

    def dump(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "best": self.best.dump() if self.best else None,
            "patience": self.patience.dump() if self.patience else None,
            "metrics": self.metrics,
            "history": self.history,
            "saved": list(self._saved) if self._saved is not None else None,
            "watching": {name: each.state_dict() for name, each in self._watching().items()},
        }

    def load(self, values: dict[str, Any]) -> None:
        """Go on from a dump."""
        self.metrics, self.history = values["metrics"], values["history"]
        if self.best is not None and values["best"] is not None:
            self.best.load(values["best"])
        if self.patience is not None and values["patience"] is not None:
            self.patience.load(values["patience"])
        for name, schedule in self._watching().items():
            if name in values.get("watching", {}):
                schedule.load_state_dict(values["watching"][name])
        if "saved" in values:
            # One that takes a lost worker's place must save when the others do, and only then.
            self._saved = values["saved"] and (values["saved"][0], values["saved"][1])

    def _is_evaluated(self) -> bool:
        """Whether this very step has been evaluated, perhaps before the run was resumed."""
        return bool(self.history) and self.history[-1]["step"] == self.position.step

    def _state_to_save(self) -> tuple[int, bool]:
        """What makes a checkpoint worth writing: a new step, or metrics of the same one."""
        return self.position.step, self._is_evaluated()

    def _watching(self) -> dict[str, LearningRate]:
        """The schedules that evaluations change."""
        return {name: each for name, each in self._parts.schedules.items() if each.watches}

    def _judge(self, metrics: dict[str, float]) -> None:
        # Before anything is saved: a resumed run does not evaluate this step again.
        for schedule in self._watching().values():
            schedule.evaluated(metrics)
        if self.patience is not None:
            self.patience.improves(metrics)
        if self.best is not None and self.best.improves(metrics):
            self.checkpoint(best=True)
