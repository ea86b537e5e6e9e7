"""Data plans: which worker trains on which rows at each step.

Plans are pure functions of seed, epoch and number of workers. All of them give every worker the
same number of steps. A worker may have fewer rows in the last step, or none; its gradient is then
weighted by its share of the rows.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flambeau.coordination.batch_cuts import DropLast, drops
from flambeau.coordination.payloads import Part
from flambeau.coordination.permutation import Permutation

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class IndexedPlan:
    """Plan over numbered rows, in one global order that does not depend on the number of workers.

    Step t takes the next `batch_size * workers` rows of that order and cuts them into equal pieces.
    So N workers train at each step on the same rows as one worker with a batch N times as large.
    """

    total: int
    batch_size: int
    workers: int
    seed: int
    shuffle: bool = True
    drop_last: DropLast = False

    def steps(self, start: int = 0) -> int:
        """Return the number of steps of an epoch that begins at row `start` of the order."""
        remaining = self.total - start
        if drops(self.drop_last, remaining, self._whole):
            return remaining // self._whole
        return -(-remaining // self._whole)

    def all_rows(self, step: int, start: int = 0) -> int:
        """Return the number of rows of all workers together at `step`."""
        return max(0, min(self._whole, self.total - start - step * self._whole))

    def rows(self, step: int, worker: int, start: int = 0) -> int:
        """Return the number of rows of `worker` at `step`."""
        first, last = self._bounds(step, worker, start)
        return last - first

    def indices(self, epoch: int, step: int, worker: int, start: int = 0) -> Rows:
        """Return the row numbers of `worker` at `step` of `epoch`."""
        first, last = self._bounds(step, worker, start)
        return self.order(epoch)(np.arange(first, last, dtype=np.int64))

    def indices_of_steps(
        self, epoch: int, first: int, last: int, worker: int, start: int = 0
    ) -> list[Rows]:
        """Return the row numbers of steps `first` to `last`, much faster than one by one."""
        bounds = [self._bounds(step, worker, start) for step in range(first, last)]
        positions = np.concatenate([np.arange(a, b, dtype=np.int64) for a, b in bounds])
        rows = self.order(epoch)(positions)
        return np.split(rows, np.cumsum([b - a for a, b in bounds])[:-1])

    def _bounds(self, step: int, worker: int, start: int) -> tuple[int, int]:
        rows = self.all_rows(step, start)
        base = start + step * self._whole
        return base + rows * worker // self.workers, base + rows * (worker + 1) // self.workers

    def order(self, epoch: int) -> Callable[[Rows], Rows]:
        """Return the order of an epoch: a function from positions to row numbers."""
        if not self.shuffle:
            return lambda positions: positions
        return Permutation(self.total, seed=self.seed, stream=epoch)

    @property
    def _whole(self) -> int:
        return self.batch_size * self.workers


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `stop` of shard number `shard`."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class HomePlan:
    """Plan over shards that only the workers of one agent can read; `homes`: rows by agent.

    `agents` has the agent of each worker. The workers of an agent read equal, contiguous parts of
    the random order of its shards. Workers of different agents may have different numbers of rows:
    all make as many steps as the one with the most.
    """

    homes: tuple[tuple[int, ...], ...]
    agents: tuple[int, ...]
    batch_size: int
    seed: int
    shuffle: bool = True
    drop_last: DropLast = False

    def steps(self, start: int = 0) -> int:
        """Return the number of steps of an epoch; `start` must be 0: epochs are whole."""
        assert start == 0
        counts = [last - first for first, last in self._bounds]
        if drops(self.drop_last, min(counts), self.batch_size):
            return min(counts) // self.batch_size
        return -(-max(counts) // self.batch_size)

    def all_rows(self, step: int, start: int = 0) -> int:
        """Return the number of rows of all workers together at `step`."""
        assert start == 0
        done = step * self.batch_size
        counts = (last - first for first, last in self._bounds)
        return sum(max(0, min(self.batch_size, count - done)) for count in counts)

    def pieces(self, epoch: int, worker: int) -> list[Piece]:
        """Return the pieces that `worker` reads in `epoch`, in order."""
        agent = self.agents[worker]
        rows = self.homes[agent]
        before = sum(len(each) for each in self.homes[:agent])
        order = np.arange(len(rows))
        if self.shuffle:
            np.random.default_rng([self.seed, epoch, agent]).shuffle(order)
        return [
            Piece(before + piece.shard, piece.start, piece.stop)
            for piece in _cut(order, rows, *self._bounds[worker])
        ]

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """First row of each worker among those of its agent, and the row after its last."""
        workers, before = Counter(self.agents), Counter[int]()
        bounds = []
        for agent in self.agents:
            total, index, count = sum(self.homes[agent]), before[agent], workers[agent]
            bounds.append((total * index // count, total * (index + 1) // count))
            before[agent] += 1
        return bounds


@dataclass(frozen=True)
class StreamedPlan:
    """Plan over shards in random order, cut so that all workers have the same number of rows.

    Every worker reads one contiguous part of the random order of shards in sequence, so only the
    shards at a cut are opened twice.
    """

    shard_rows: tuple[int, ...]
    batch_size: int
    workers: int
    seed: int
    shuffle: bool = True
    drop_last: DropLast = False

    @cached_property
    def total(self) -> int:
        """Number of rows of all shards."""
        return sum(self.shard_rows)

    def steps(self, start: int = 0) -> int:
        """Return the number of steps of an epoch; `start` must be 0: epochs are whole."""
        assert start == 0
        counts = [self._worker_rows(worker) for worker in range(self.workers)]
        if drops(self.drop_last, min(counts), self.batch_size):
            return min(counts) // self.batch_size
        return -(-max(counts) // self.batch_size)

    def rows(self, step: int, worker: int, start: int = 0) -> int:
        """Return the number of rows of `worker` at `step`."""
        assert start == 0
        done = step * self.batch_size
        return max(0, min(self.batch_size, self._worker_rows(worker) - done))

    def all_rows(self, step: int, start: int = 0) -> int:
        """Return the number of rows of all workers together at `step`."""
        return sum(self.rows(step, worker, start) for worker in range(self.workers))

    def pieces(self, epoch: int, worker: int) -> list[Piece]:
        """Return the pieces that `worker` reads in `epoch`, in order."""
        order = np.arange(len(self.shard_rows))
        if self.shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(order)
        return _cut(order, self.shard_rows, *self._bounds(worker))

    def _worker_rows(self, worker: int) -> int:
        first, last = self._bounds(worker)
        return last - first

    def _bounds(self, worker: int) -> tuple[int, int]:
        return self.total * worker // self.workers, self.total * (worker + 1) // self.workers


def _cut(order: Rows, shard_rows: Sequence[int], first: int, last: int) -> list[Piece]:
    """Return rows `first` to `last` of all shards in the given order, as pieces of shards."""
    pieces, position = [], 0
    for shard in order.tolist():
        rows = shard_rows[shard]
        start, stop = max(first - position, 0), min(last - position, rows)
        if start < stop:
            pieces.append(Piece(shard, start, stop))
        position += rows
    return pieces


def whole_shards(rows: Sequence[int], part_rows: int) -> list[Part]:
    """Group shards with these numbers of rows into parts of about `part_rows` rows, in order."""
    parts: list[Part] = []
    first = waiting = 0
    for number, count in enumerate(rows):
        if waiting and waiting + count > part_rows:
            parts.append(Part(len(parts), first, number, waiting))
            first, waiting = number, 0
        waiting += count
    return [*parts, Part(len(parts), first, len(rows), waiting)]
