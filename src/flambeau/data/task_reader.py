"""Readers of tasks: pieces of the data that are assigned while the training runs.

The rows in batch k of a task depend on the task alone, not on the worker or time of reading.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from flambeau.coordination.tasks import Task
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.loader import Transform, cut, mix
from flambeau.data.source import IndexedSource, IterableSource, Share, StreamedSource

#: Upper limit of the batches of a task; random augmentation is keyed by batch numbers.
_BATCHES = 1 << 32


class TaskReader(ABC):
    """Reader of the tasks of one source."""

    def __init__(self, binder: Binder, transform: Transform | None, batch_size: int) -> None:
        self._binder, self._transform = binder, transform
        self.batch_size = batch_size

    def read(self, task: Task) -> Iterator[tuple[int, Batch]]:
        """Yield the numbers and batches of a task, from its first batch that is not done."""
        for number, batch in enumerate(self._read(task), start=task.first_batch):
            batch = batch.at(task.epoch, task.number * _BATCHES + number)
            yield number, batch if self._transform is None else self._transform(batch)

    @abstractmethod
    def _read(self, task: Task) -> Iterator[Batch]:
        """Yield assembled batches, from the first that is not done."""


@final
class IndexedTasks(TaskReader):
    """Tasks that are positions in the order of rows `order(epoch)`."""

    def __init__(
        self,
        source: IndexedSource,
        order: Callable[[int], Callable[[Any], Any]],
        binder: Binder,
        transform: Transform | None,
        batch_size: int,
    ) -> None:
        super().__init__(binder, transform, batch_size)
        self._source, self._order = source, order

    def _read(self, task: Task) -> Iterator[Batch]:
        rows = self._order(task.epoch)(np.arange(task.start, task.stop, dtype=np.int64))
        for start in range(task.first_batch * self.batch_size, rows.size, self.batch_size):
            chosen = rows[start : start + self.batch_size]
            yield self._binder.prepare(self._source.take(chosen, self._binder.columns))


@final
class StreamedTasks(TaskReader):
    """Tasks that are parts of shards, whose rows are shuffled within windows.

    The shuffled order does not depend on how the shard is cut into tasks. The last window is kept
    in memory, since the next task often needs other rows of it.
    """

    def __init__(
        self,
        source: StreamedSource,
        binder: Binder,
        transform: Transform | None,
        batch_size: int,
        seed: int,
        window: int | None,
    ) -> None:
        """Shuffle windows of `window` rows, a multiple of `batch_size`; None: keep the order."""
        super().__init__(binder, transform, batch_size)
        assert window is None or window % batch_size == 0
        self._source, self._seed = source, seed
        self._shards = source.shards()
        self._window = window
        self._kept: tuple[int, int, Batch] | None = None

    def _read(self, task: Task) -> Iterator[Batch]:
        shard, size = task.number % len(self._shards), self.batch_size
        start = task.start + task.first_batch * size
        if start >= task.stop:
            return
        if self._window is None:
            yield from cut(self._blocks(shard, start, task.stop), size)
            return
        first, last = start // self._window, -(-task.stop // self._window)
        for number, window in self._windows(shard, self._window, first, last):
            key, place = [self._seed, task.epoch, shard, number], number * self._window
            yield from mix(window, key, size, max(0, start - place), task.stop - place)

    def _windows(self, shard: int, size: int, first: int, last: int) -> Iterator[tuple[int, Batch]]:
        """Yield windows `first` to `last` of a shard, with their numbers."""
        if self._kept is not None and self._kept[:2] == (shard, first):
            yield first, self._kept[2]
            first += 1
        if first < last:
            self._kept = None
            stop = min(last * size, self._shards[shard].rows)
            blocks = self._blocks(shard, first * size, stop)
            for number, window in enumerate(cut(blocks, size), start=first):
                self._kept = (shard, number, window)
                yield number, window

    def _blocks(self, shard: int, start: int, stop: int) -> Iterator[Batch]:
        columns = self._binder.columns
        for records in self._source.read(self._shards[shard], columns, start, stop):
            yield self._binder.read(records)


@final
class SharedTasks(TaskReader):
    """Tasks that are shares of the user's own iterator, which is read from its start."""

    def __init__(
        self,
        source: IterableSource,
        shares: int,
        seed: int,
        binder: Binder,
        transform: Transform | None,
        batch_size: int,
    ) -> None:
        super().__init__(binder, transform, batch_size)
        self._source, self._shares, self._seed = source, shares, seed

    def _read(self, task: Task) -> Iterator[Batch]:
        share = Share(task.number, self._shares, task.epoch, self._seed)
        for number, batch in enumerate(self._source.batches(share, self.batch_size)):
            if number >= task.first_batch:
                yield self._binder.assemble(batch)
