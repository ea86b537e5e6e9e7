"""Gradients of a round that wait for the coordinator's decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from flambeau.parameter_server.gradient import Gradient, weighted_mean
from flambeau.parameter_server.protocol import Outcome
from flambeau.tables.index.unique_ids import Fold


@dataclass(frozen=True)
class Standing:
    """State of a worker's gradient: its outcome, or None until that is decided."""

    outcome: Outcome | None
    new: bool = False


@final
class Staging:
    """Open round of one shard. Keeps one gradient per worker in memory."""

    def __init__(self, round_number: int, clip_value: float | None) -> None:
        self.round = round_number
        self._clip_value = clip_value
        self._waiting: dict[int, tuple[float, Gradient]] = {}
        self._last: dict[int, tuple[int, Outcome]] = {}
        self._total: Gradient | None = None
        self._fold = Fold()

    def stage(self, worker: int, number: int, weight: float, gradient: Gradient) -> Standing:
        """Keep a worker's gradient of round `number`, unless it is a duplicate or late."""
        before = self._last.get(worker)
        if before is not None and before[0] == number:
            return Standing(before[1])
        if number < self.round:
            return Standing("late")
        new = worker not in self._waiting
        if new:
            self._waiting[worker] = (weight, gradient)
        return Standing(None, new)

    def squares(self, members: Sequence[int]) -> float:
        """Return the squared norm of the members' mean gradient."""
        return self._mean(members).squares()

    def close(self, members: Sequence[int], scale: float, apply: bool) -> Gradient | None:
        """End the round; return the gradient to apply, if any. All others are dropped."""
        total = self._mean(members) if apply else None
        if total is not None:
            total.scale(scale)
        for worker in self._waiting:
            outcome: Outcome = ("applied" if apply else "skipped") if worker in members else "late"
            self._last[worker] = (self.round, outcome)
        self._waiting.clear()
        self._total = None
        self.round += 1
        return total

    def outcome(self, worker: int, number: int) -> Outcome:
        """Return the outcome of a gradient of a closed round."""
        before = self._last.get(worker)
        return before[1] if before is not None and before[0] == number else "late"

    def _mean(self, members: Sequence[int]) -> Gradient:
        if self._total is None:
            self._total = weighted_mean([self._waiting[worker] for worker in members], self._fold)
            if self._clip_value is not None:
                self._total.clamp(self._clip_value)
        return self._total
