"""Events about a worker: what it asks of servers, and where the time of its steps goes."""

import time
from typing import final

from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.observe.memory import peak_memory
from flambeau.strategies.base import Strategy
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.step_times import StepTimes

REPORT_SECONDS = 2.0
#: Client reports between two `worker` events, of which the first one comes at once.
_EVERY = 5


@final
class WorkerReports(Callback):
    """Marks each step, and reports every 2 seconds what a strategy counts (a `client` event).

    Every 10 seconds it reports the worker's steps, their times and its memory (`worker`).
    """

    def __init__(
        self, coordinator: CoordinatorClient, strategy: Strategy, times: StepTimes
    ) -> None:
        self._coordinator, self._strategy, self._times = coordinator, strategy, times
        self._due = time.monotonic() + REPORT_SECONDS
        self._reports = 0

    def on_step_end(self, view: TrainingView) -> None:
        """Mark the step; report, if it is time."""
        self._coordinator.mark()
        if time.monotonic() >= self._due:
            self._report(with_times=self._reports % _EVERY == 0)

    def on_end(self, view: TrainingView) -> None:
        """Report for the last time."""
        self._report(with_times=True)

    def _report(self, *, with_times: bool) -> None:
        self._due = time.monotonic() + REPORT_SECONDS
        self._reports += 1
        rank = self._coordinator.spec.rank
        counts = self._strategy.summary()
        if counts:  # a strategy without servers has none
            self._coordinator.report("client", rank=rank, **counts)
        if with_times:
            self._coordinator.report(
                "worker",
                rank=rank,
                steps=self._times.steps,
                seconds_per_step=self._times.per_step(),
                memory_bytes=peak_memory(),
            )
