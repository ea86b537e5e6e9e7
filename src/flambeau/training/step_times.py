"""A breakdown of the time of a worker's steps."""

from collections.abc import Callable
from typing import final

from flambeau.strategies.base import TableSeconds


@final
class StepTimes:
    """Sums over the parts of all steps; `table_seconds` is that of the `Strategy`."""

    def __init__(self, table_seconds: Callable[[], TableSeconds]) -> None:
        self._table_seconds = table_seconds
        self._before = TableSeconds()
        self.steps = 0
        self._all = self._data = self._sparse = self._wait = 0.0

    def begin(self) -> None:
        """Mark the start of a step, when its rows have arrived."""
        self._before = self._table_seconds()

    def end(self, seconds: float, data_seconds: float) -> None:
        """Add the step: its duration `seconds` includes `data_seconds`, the wait for its rows."""
        now, before = self._table_seconds(), self._before
        self.steps += 1
        self._all += seconds
        self._data += data_seconds
        self._sparse += now.sparse - before.sparse
        self._wait += now.wait - before.wait

    def per_step(self) -> dict[str, float]:
        """Return mean seconds of a step for data, tables, answers of servers, and all the rest."""
        steps = max(1, self.steps)
        rest = max(0.0, self._all - self._data - self._sparse - self._wait)
        parts = {"data": self._data, "dense": rest, "sparse": self._sparse, "wait": self._wait}
        return {name: seconds / steps for name, seconds in parts.items()}
