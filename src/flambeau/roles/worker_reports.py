"""Events about a worker: its requests to servers, and the times of its steps."""

import time
from typing import final

from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.observe.memory import peak_memory
from flambeau.strategies.base import Strategy
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.step_times import StepTimes

REPORT_SECONDS = 2.0
#: Client reports per `worker` event; the first report includes one.
_EVERY = 5


@final
class WorkerReports(Callback):
    """A callback that marks each step and reports a strategy's counts every 2 seconds (`client`).

    Every 10 seconds it reports the worker's steps, their times and its memory (`worker`).
    """

    def __init__(
        self, coordinator: CoordinatorClient, strategy: Strategy, times: StepTimes
    ) -> None:
        self._coordinator, self._strategy, self._times = coordinator, strategy, times
        self._due = time.monotonic() + REPORT_SECONDS
        self._reports = 0

    def on_step_end(self, view: TrainingView) -> None:
        """Mark the step; report if a report is due."""
        self._coordinator.mark()
        if time.monotonic() >= self._due:
            self._report(with_times=self._reports % _EVERY == 0)

    def on_end(self, view: TrainingView) -> None:
        """Send the last report."""
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
