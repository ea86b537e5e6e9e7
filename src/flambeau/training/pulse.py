"""Periodic exchanges between all workers: loss, times, and whether to stop.

An exchange at every step would be expensive for small steps, and one every n steps would react late
when steps are slow; so the time of the next one follows from how long the steps took.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch

from flambeau.coordination.step_sums import StepSums
from flambeau.strategies.group import Group

PULSE_SECONDS = 0.5
MAX_STEPS = 1000


@dataclass(frozen=True)
class Beat:
    """Sums of all workers since the last exchange, and whether to stop."""

    sums: StepSums
    stop: bool


class Pulse(ABC):
    """Collection of numbers on this worker until they are due to be shared."""

    def __init__(self) -> None:
        self._sums = StepSums()

    def add(self, loss: float, rows: int, seconds: float, data_seconds: float) -> None:
        """Add one step of this worker; a step that was skipped has no loss (NaN)."""
        counted = not math.isnan(loss)
        self._sums += StepSums(
            loss * rows if counted else 0.0, rows if counted else 0, 1, seconds, data_seconds
        )

    def _take(self, communication: float) -> StepSums:
        """Return the sums, and reset them; `communication` is the waiting time of a recent step."""
        sums, self._sums = self._sums, StepSums()
        sums.waiting_seconds = communication * sums.steps
        return sums

    @abstractmethod
    def due(self, step: int) -> bool:
        """Return whether to call `agree` after this step."""

    @abstractmethod
    def agree(self, step: int, *, stop: bool, communication: float) -> Beat:
        """Share the numbers. A beat without rows means that the coordinator reports progress."""

    @abstractmethod
    def stop_agreed(self, wanted: bool) -> bool:
        """Return whether a callback of any worker wants to stop; called after every step."""


@final
class CollectivePulse(Pulse):
    """Exchange by a collective operation of all workers, at the same steps.

    With `callbacks`, which may stop the training at any step, they also exchange one number after
    every step.
    """

    def __init__(self, group: Group, step: int, *, callbacks: bool = False) -> None:
        super().__init__()
        self._group, self._callbacks = group, callbacks
        self._due = step + 1

    def due(self, step: int) -> bool:
        """Return whether an exchange is due, with the same answer on every worker."""
        return step >= self._due

    def agree(self, step: int, *, stop: bool, communication: float) -> Beat:
        """Exchange the numbers. Every worker gets the same answer."""
        local = self._take(communication).numbers()
        vector = torch.tensor([*local, float(stop)], dtype=torch.float64)
        loss, rows, steps, *seconds, stops = self._group.sum(vector).tolist()
        sums = StepSums(loss, int(rows), int(steps), *seconds)
        mean = max(sums.seconds_per_step, 1e-6)
        self._due = step + max(1, min(MAX_STEPS, int(PULSE_SECONDS / mean)))
        return Beat(sums, stop=stops > 0)

    def stop_agreed(self, wanted: bool) -> bool:
        """Return whether any worker wants to stop, with the same answer on every worker."""
        if not self._callbacks:
            return False
        return bool(self._group.sum(torch.tensor([float(wanted)])).item())


@final
class ReportedPulse(Pulse):
    """Exchange by reports to the coordinator, so that no worker waits for a slow one.

    `report` takes the fields of a `pulse` report; `want_stop` is called once when a worker's own
    callback requests a stop. The answers to pushes confirm it.
    """

    def __init__(self, report: Callable[..., None], want_stop: Callable[[], None]) -> None:
        super().__init__()
        self._report, self._want_stop = report, want_stop
        self._due = 0.0
        self._asked = False

    def due(self, step: int) -> bool:
        """Return whether this worker's next report is due."""
        return time.perf_counter() >= self._due

    def agree(self, step: int, *, stop: bool, communication: float) -> Beat:
        """Send the numbers to the coordinator."""
        self._due = time.perf_counter() + PULSE_SECONDS
        self.stop_agreed(stop)
        self._report(step=step, sums=self._take(communication).numbers())
        return Beat(StepSums(), stop=False)

    def stop_agreed(self, wanted: bool) -> bool:
        """Request a stop once; the answer to a later push confirms it."""
        if wanted and not self._asked:
            self._asked = True
            self._want_stop()
        return False
