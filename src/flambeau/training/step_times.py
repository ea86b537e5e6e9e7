"""Where the time of a worker's steps went."""

from collections.abc import Callable
from typing import final

from flambeau.strategies.base import TableSeconds


@final
class StepTimes:
    """Adds up the parts of all steps; `table_seconds` as a `Strategy` has it."""

    def __init__(self, table_seconds: Callable[[], TableSeconds]) -> None:
        self._table_seconds = table_seconds
        self._before = TableSeconds()
        self.steps = 0
        self._all = self._data = self._sparse = self._wait = 0.0

    def begin(self) -> None:
        """The rows of a step are there."""
        self._before = self._table_seconds()

    def end(self, seconds: float, data_seconds: float) -> None:
        """The step that `begin` began took so long, the time until its rows were there included."""
        now, before = self._table_seconds(), self._before
        self.steps += 1
        self._all += seconds
        self._data += data_seconds
        self._sparse += now.sparse - before.sparse
        self._wait += now.wait - before.wait

    def per_step(self) -> dict[str, float]:
        """Mean seconds of a step: for data, tables, answers of servers, and all the rest."""
        steps = max(1, self.steps)
        rest = max(0.0, self._all - self._data - self._sparse - self._wait)
        parts = {"data": self._data, "dense": rest, "sparse": self._sparse, "wait": self._wait}
        return {name: seconds / steps for name, seconds in parts.items()}
