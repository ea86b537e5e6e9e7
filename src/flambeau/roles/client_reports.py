"""What a worker asks of the servers, told to whoever watches."""

import time
from typing import final

from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.strategies.base import Strategy
from flambeau.training.callbacks import Callback, TrainingView

REPORT_SECONDS = 2.0


@final
class ClientReports(Callback):
    """Marks each step, and reports a strategy's counts (a `client` event) every 2 seconds."""

    def __init__(self, coordinator: CoordinatorClient, strategy: Strategy) -> None:
        self._coordinator, self._strategy = coordinator, strategy
        self._due = time.monotonic() + REPORT_SECONDS

    def on_step_end(self, view: TrainingView) -> None:
        """Mark the step; report, if it is time."""
        self._coordinator.mark()
        if time.monotonic() >= self._due:
            self._report()

    def on_end(self, view: TrainingView) -> None:
        """Report for the last time."""
        self._report()

    def _report(self) -> None:
        self._due = time.monotonic() + REPORT_SECONDS
        counts = self._strategy.summary()
        if counts:  # a strategy without servers has none
            self._coordinator.report("client", rank=self._coordinator.spec.rank, **counts)
