"""What both sides of the parameter-server benchmark do: batches of random rows, two in flight."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

DIM = 16
BATCH_ROWS = 20_000
FEW_ROWS = 8
IN_FLIGHT = 2
LEARNING_RATE = 0.05
#: So many different batches, in turn: too many rows for the caches.
BATCHES = 200

Array = np.ndarray[Any, Any]


def batches(rows: int, seed: int) -> list[Array]:
    """Batches of distinct row numbers below `rows`, each in random order."""
    generator = np.random.default_rng(seed)
    return [_distinct(generator, rows) for _ in range(BATCHES)]


def _distinct(generator: np.random.Generator, rows: int) -> Array:
    if rows < 20 * BATCH_ROWS:
        return generator.permutation(rows)[:BATCH_ROWS]
    drawn = np.unique(generator.integers(0, rows, BATCH_ROWS + BATCH_ROWS // 10))
    return generator.permutation(drawn)[:BATCH_ROWS]


class RowClient(ABC):
    """A client of a server of rows. A batch is a place in the list that the client has made."""

    @abstractmethod
    def begin_pull(self, batch: int, *, few: bool = False) -> Any:
        """Ask for the rows of a batch, or for just a `few` of them, without waiting."""

    @abstractmethod
    def finish_pull(self, pending: Any) -> None:
        """Wait for the rows."""

    @abstractmethod
    def begin_push(self, batch: int) -> Any:
        """Send gradients of the rows of a batch, without waiting."""

    @abstractmethod
    def finish_push(self, pending: Any) -> None:
        """Wait until they have been applied."""


@final
class Requests:
    """Answers the questions of the benchmark with a client."""

    def __init__(self, client: RowClient) -> None:
        self._client = client
        self._next = 0

    def answer(self, do: str, count: int) -> dict[str, Any]:
        """The seconds for `count` requests: `pull`, `push` or `pull_few`, and its percentiles."""
        client = self._client
        if do == "pull_few":
            return self._one_by_one(count)
        if do == "pull":
            return {"seconds": self._overlapped(client.begin_pull, client.finish_pull, count)}
        return {"seconds": self._overlapped(client.begin_push, client.finish_push, count)}

    def _overlapped(
        self, begin: Callable[[int], Any], finish: Callable[[Any], None], count: int
    ) -> float:
        pending: deque[Any] = deque()
        started = time.perf_counter()
        for batch in self._places(count):
            pending.append(begin(batch))
            if len(pending) == IN_FLIGHT:
                finish(pending.popleft())
        while pending:
            finish(pending.popleft())
        return time.perf_counter() - started

    def _one_by_one(self, count: int) -> dict[str, Any]:
        durations = []
        for batch in self._places(count):
            started = time.perf_counter()
            self._client.finish_pull(self._client.begin_pull(batch, few=True))
            durations.append(time.perf_counter() - started)
        p50, p99 = np.percentile(durations, [50, 99]).tolist()
        return {"seconds": sum(durations), "p50": p50, "p99": p99}

    def _places(self, count: int) -> Sequence[int]:
        first, self._next = self._next, self._next + count
        return [number % BATCHES for number in range(first, self._next)]
