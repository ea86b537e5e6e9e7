"""Sums over the steps of workers, and the progress event that is made from them."""

import math
from dataclasses import astuple, dataclass
from typing import Any, Self, final


@final
@dataclass
class StepSums:
    """Sums over steps: loss x rows, rows, steps, and seconds in total, for data and for waiting."""

    loss: float = 0.0
    rows: int = 0
    steps: int = 0
    seconds: float = 0.0
    data_seconds: float = 0.0
    waiting_seconds: float = 0.0

    def __iadd__(self, other: "StepSums") -> Self:
        self.loss += other.loss
        self.rows += other.rows
        self.steps += other.steps
        self.seconds += other.seconds
        self.data_seconds += other.data_seconds
        self.waiting_seconds += other.waiting_seconds
        return self

    def numbers(self) -> list[float]:
        """Return all sums, in the order of the fields."""
        return [float(number) for number in astuple(self)]

    @property
    def seconds_per_step(self) -> float:
        """Mean duration of a step."""
        return self.seconds / max(1, self.steps)

    def progress(self, elapsed: float) -> dict[str, Any]:
        """Return the fields of a `progress` event about the last `elapsed` seconds."""
        steps = max(1, self.steps)
        data, waiting = self.data_seconds / steps, self.waiting_seconds / steps
        return {
            "rows_per_second": self.rows / max(elapsed, 1e-9),
            "loss": self.loss / self.rows if self.rows else math.nan,
            "data_seconds": data,
            "compute_seconds": max(0.0, self.seconds_per_step - data - waiting),
            "communication_seconds": waiting,
        }
