"""The moments at which all workers compare notes: loss, times, and whether to stop.

Comparing at every step would cost a small step dearly, and comparing every n steps would make a
slow one deaf; so the next moment follows from how long the steps took, as agreed by all.
"""

from dataclasses import dataclass
from typing import final

import torch

from flambeau.strategies.group import Group

PULSE_SECONDS = 0.5
MAX_STEPS = 1000


@dataclass(frozen=True)
class Beat:
    """What all workers together did since the last beat. Times are means per step in seconds."""

    loss: float
    rows: int
    step_seconds: float
    data_seconds: float
    communication_seconds: float
    stop: bool


@final
class Pulse:
    """Collects numbers on this worker, and agrees on them with the others when it is due."""

    def __init__(self, group: Group, step: int) -> None:
        self._group = group
        self._due = step + 1
        self._clear()

    def _clear(self) -> None:
        self._loss = 0.0
        self._rows = 0
        self._steps = 0
        self._seconds = self._data = 0.0

    def add(self, loss: float, rows: int, seconds: float, data_seconds: float) -> None:
        """One step of this worker."""
        self._loss += loss * rows
        self._rows += rows
        self._steps += 1
        self._seconds += seconds
        self._data += data_seconds

    def due(self, step: int) -> bool:
        """Whether to call `agree` after this step; the same answer on every worker."""
        return step >= self._due

    def agree(self, step: int, *, stop: bool, communication: float) -> Beat:
        """Compare notes. Every worker gets the same answer."""
        local = [self._loss, self._rows, self._steps, self._seconds, self._data]
        vector = torch.tensor([*local, communication, float(stop)], dtype=torch.float64)
        loss, rows, steps, seconds, data, waiting, stops = self._group.sum(vector).tolist()
        steps = max(steps, 1.0)
        mean = seconds / steps
        self._due = step + max(1, min(MAX_STEPS, int(PULSE_SECONDS / max(mean, 1e-6))))
        self._clear()
        return Beat(
            loss=loss / rows if rows else float("nan"),
            rows=int(rows),
            step_seconds=mean,
            data_seconds=data / steps,
            communication_seconds=waiting / self._group.size,
            stop=stops > 0,
        )
