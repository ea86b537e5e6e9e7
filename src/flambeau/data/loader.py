"""Loaders: from a source and a plan to the batches of one worker, step by step."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from flambeau.config import Loading
from flambeau.coordination.plans import HomePlan, IndexedPlan, StreamedPlan
from flambeau.data.batch import Batch, concatenate
from flambeau.data.binding import Binder
from flambeau.data.read_ahead import ReadAhead
from flambeau.data.source import (
    IndexedSource,
    IterableSource,
    Rows,
    Share,
    Source,
    StreamedSource,
)
from flambeau.errors import ConfigError, UserError

Transform = Callable[[Batch], Batch]

#: Number of steps for which row numbers are computed at a time.
PLAN_AHEAD = 64
#: multiprocessing uses 32 of the 107 bytes of a socket's path (/pymp-xxxxxxxx/listener-xxxxxxxx).
LONGEST_FOLDER = 75


@dataclass(frozen=True)
class StepRows:
    """One step of one worker: its batch (None: no rows left) and the number of rows of all workers.

    `all_rows` is None if only the workers together can determine it.
    """

    batch: Batch | None
    all_rows: int | None


Steps = ReadAhead[StepRows] | Generator[StepRows, None, None]


class Loader(ABC):
    """Batches of one worker, read by a thread unless `read_ahead` is 0."""

    def __init__(self, binder: Binder, transform: Transform | None, read_ahead: int) -> None:
        self._binder = binder
        self._transform = transform
        self._read_ahead = read_ahead

    def epoch(self, epoch: int, first: int = 0, start: int = 0) -> Steps:
        """Return the steps of an epoch from step `first`; the epoch begins at row `start`."""
        steps = self._prepared(epoch, first, start)
        return ReadAhead(steps, self._read_ahead) if self._read_ahead else steps

    @abstractmethod
    def steps(self, start: int = 0) -> int | None:
        """Return the number of steps of an epoch, or None if it is unknown."""

    @abstractmethod
    def _read(self, epoch: int, first: int, start: int) -> Iterator[StepRows]:
        """Yield the steps, assembled but not transformed."""

    def _prepared(self, epoch: int, first: int, start: int) -> Generator[StepRows, None, None]:
        for index, step in enumerate(self._read(epoch, first, start), start=first):
            batch = step.batch
            if batch is not None:
                batch = batch.at(epoch, index)
                if self._transform is not None:
                    batch = self._transform(batch)
            yield StepRows(batch, step.all_rows)


@final
class IndexedLoader(Loader):
    """Batches of rows by number, from memory or from processes that run the Dataset's code."""

    def __init__(
        self,
        source: IndexedSource,
        plan: IndexedPlan,
        worker: int,
        binder: Binder,
        transform: Transform | None,
        loading: Loading,
        processes: int,
    ) -> None:
        # Copying rows from memory involves no waiting that a thread could hide.
        copies_only = source.in_memory and transform is None and not processes
        super().__init__(binder, transform, 0 if copies_only else loading.read_ahead)
        self._source, self._plan, self._worker = source, plan, worker
        self._processes = processes
        if processes:
            _require_short_folder()

    def steps(self, start: int = 0) -> int:
        """Return the number of steps of an epoch."""
        return self._plan.steps(start)

    def _read(self, epoch: int, first: int, start: int) -> Iterator[StepRows]:
        batches = self._batches(self._indices(epoch, first, start))
        try:
            for step in range(first, self.steps(start)):
                batch = next(batches)
                if isinstance(batch, UserError):
                    raise batch
                rows = self._plan.all_rows(step, start)
                yield StepRows(self._binder.prepare(batch) if batch is not None else None, rows)
        finally:
            # Loader processes must end by themselves, or they leave their sockets' files behind.
            end = getattr(batches, "_shutdown_workers", None)
            if end is not None:
                end()

    def _indices(self, epoch: int, first: int, start: int) -> Iterator[np.ndarray]:
        total = self.steps(start)
        for begin in range(first, total, PLAN_AHEAD):
            end = min(begin + PLAN_AHEAD, total)
            yield from self._plan.indices_of_steps(epoch, begin, end, self._worker, start)

    def _batches(self, indices: Iterator[np.ndarray]) -> Iterator[Rows | UserError | None]:
        take = _Take(self._source, self._binder.columns)
        if not self._processes:
            return map(take, indices)
        # Iterating over the sampler in the parent must be cheap: it is the plan itself.
        return iter(
            torch.utils.data.DataLoader(
                take,
                sampler=_Sampler(indices),
                collate_fn=_as_it_is,
                batch_size=None,
                num_workers=self._processes,
                prefetch_factor=2,
            )
        )


def _require_short_folder() -> None:
    """Raise `ConfigError` if the temporary folder's path is too long for torch's sockets.

    With such a path, torch would lose batches without an error and wait for them forever.
    """
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        raise ConfigError(
            f"the temporary folder {folder} has more than {LONGEST_FOLDER} characters, too many "
            "for the sockets of loader processes: set TMPDIR to a shorter one, or loading.workers=0"
        )


def _as_it_is(batch: Any) -> Any:
    return batch


class _Sampler:
    """Sampler that wraps an iterator of row numbers."""

    def __init__(self, indices: Iterator[np.ndarray]) -> None:
        self._indices = indices

    def __iter__(self) -> Iterator[np.ndarray]:
        return self._indices


class _Take(torch.utils.data.Dataset[Any]):
    """A dataset whose items are whole batches, given their row numbers."""

    def __init__(self, source: IndexedSource, columns: Sequence[str]) -> None:
        self._source, self._columns = source, columns

    def __call__(self, rows: np.ndarray) -> Rows | None:
        return self._source.take(rows, self._columns) if len(rows) else None

    def __getitem__(self, rows: Any) -> Rows | UserError | None:
        try:
            return self(rows)
        except UserError as error:
            return error  # unchanged; torch would wrap it into a traceback of its process


@final
class StreamedLoader(Loader):
    """Batches of shards that are read in sequence and shuffled in windows of rows."""

    def __init__(
        self,
        source: StreamedSource,
        plan: StreamedPlan | HomePlan,
        worker: int,
        binder: Binder,
        transform: Transform | None,
        loading: Loading,
    ) -> None:
        super().__init__(binder, transform, loading.read_ahead)
        self._source, self._plan, self._worker = source, plan, worker
        self._shards = source.shards()
        # A multiple of the batch size, so that the start of a window follows from the step alone.
        self._window = loading.window(plan.batch_size)

    def steps(self, start: int = 0) -> int:
        """Return the number of steps of an epoch."""
        return self._plan.steps(start)

    def _read(self, epoch: int, first: int, start: int) -> Iterator[StepRows]:
        size = self._plan.batch_size
        read = self._shuffled if self._plan.shuffle else self._in_order
        batches = read(epoch, first)
        for step in range(first, self.steps(start)):
            batch = next(batches, None)
            assert batch is None or batch.size <= size
            yield StepRows(batch, self._plan.all_rows(step, start))

    def _in_order(self, epoch: int, first: int) -> Iterator[Batch]:
        size = self._plan.batch_size
        return cut(self._blocks(epoch, first * size), size)

    def _shuffled(self, epoch: int, first: int) -> Iterator[Batch]:
        size = self._plan.batch_size
        window_number, skip = divmod(first * size, self._window)
        blocks = self._blocks(epoch, window_number * self._window)
        for number, window in enumerate(cut(blocks, self._window), start=window_number):
            key = [self._plan.seed, epoch, self._worker, number]
            yield from mix(window, key, size, skip)
            skip = 0

    def _blocks(self, epoch: int, skip: int) -> Iterator[Batch]:
        """Yield blocks of the worker's rows as they are read, in the plan's order, from `skip`."""
        for piece in self._plan.pieces(epoch, self._worker):
            rows = piece.stop - piece.start
            if skip >= rows:
                skip -= rows
                continue
            shard = self._shards[piece.shard]
            start, skip = piece.start + skip, 0
            for records in self._source.read(shard, self._binder.columns, start, piece.stop):
                yield self._binder.read(records)


@final
class IterableLoader(Loader):
    """Batches of the user's own iterator. To resume in an epoch, it is read from its start."""

    def __init__(
        self,
        source: IterableSource,
        share: Callable[[int], Share],
        batch_size: int,
        binder: Binder,
        transform: Transform | None,
        loading: Loading,
    ) -> None:
        super().__init__(binder, transform, loading.read_ahead)
        self._source, self._share, self._batch_size = source, share, batch_size

    def steps(self, start: int = 0) -> None:
        """Return None: the number of steps is unknown until the iterator ends."""
        return

    def _read(self, epoch: int, first: int, start: int) -> Iterator[StepRows]:
        batches = self._source.batches(self._share(epoch), self._batch_size)
        for index, batch in enumerate(batches):
            if index >= first:
                yield StepRows(self._binder.assemble(batch), None)


def cut(blocks: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Yield the same rows in batches of `size`: views if a batch is within one block."""
    waiting: list[Batch] = []
    rows = 0
    for block in blocks:
        position = 0
        if waiting:
            position = min(size - rows, block.size)
            waiting.append(block.slice(0, position))
            rows += position
            if rows < size:
                continue
            yield concatenate(waiting)
            waiting, rows = [], 0
        while block.size - position >= size:
            yield block.slice(position, position + size)
            position += size
        if position < block.size:
            waiting, rows = [block.slice(position, block.size)], block.size - position
    if waiting:
        yield concatenate(waiting)


def mix(
    window: Batch, key: Sequence[int], size: int, skip: int, stop: int | None = None
) -> Iterator[Batch]:
    """Yield rows `skip` to `stop` of a window, shuffled by `key`, in batches of `size`."""
    order = torch.from_numpy(np.random.default_rng(key).permutation(window.size)[:stop])
    for begin in range(skip, len(order), size):
        yield window.take(order[begin : begin + size])


def in_order(source: Source, binder: Binder, batch_size: int) -> Iterator[Batch]:
    """Yield all rows of a source in their own order, for one process that evaluates or predicts."""
    if isinstance(source, IterableSource):
        return map(binder.assemble, source.batches(Share(0, 1, 0, 0), batch_size))
    if isinstance(source, IndexedSource):
        return _indexed_in_order(source, binder, batch_size)
    blocks = (
        binder.read(records)
        for shard in source.shards()
        for records in source.read(shard, binder.columns)
    )
    return cut(blocks, batch_size)


def _indexed_in_order(source: IndexedSource, binder: Binder, batch_size: int) -> Iterator[Batch]:
    for start in range(0, len(source), batch_size):
        rows = np.arange(start, min(start + batch_size, len(source)))
        yield binder.prepare(source.take(rows, binder.columns))
