import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.config import Binding, Loading
from flambeau.coordination.plans import IndexedPlan, StreamedPlan
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.loader import (
    PLAN_AHEAD,
    IndexedLoader,
    IterableLoader,
    Loader,
    StreamedLoader,
    cut,
    in_order,
)
from flambeau.data.source import IndexedSource, IterableSource, Shard, Share, Source, StreamedSource
from flambeau.errors import ConfigError

COLUMNS = ("x",)


class Numbers(IndexedSource):
    """Rows whose value is their number; row `bad` cannot be read."""

    def __init__(self, total: int, bad: int | None = None) -> None:
        self._total, self._bad = total, bad

    @property
    def columns(self) -> tuple[str, ...]:
        return COLUMNS

    def __len__(self) -> int:
        return self._total

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        if self._bad is not None and self._bad in rows:
            raise OSError(f"row {self._bad} cannot be read")
        return Batch({"x": torch.from_numpy(rows.copy())}, len(rows))


class Shards(StreamedSource):
    """Shards of consecutive numbers, read in record batches of at most three rows."""

    def __init__(self, *rows: int) -> None:
        self._first = np.cumsum([0, *rows]).tolist()
        self._shards = [Shard("memory", part, count) for part, count in enumerate(rows)]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("x", pa.int64())])

    def shards(self) -> Sequence[Shard]:
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        first = self._first[shard.part]
        last = first + (shard.rows if stop is None else stop)
        for begin in range(first + start, last, 3):
            yield pa.RecordBatch.from_pydict({"x": np.arange(begin, min(begin + 3, last))})


class Stream(IterableSource):
    """Numbers from an iterator; each epoch begins at another hundred."""

    def __init__(self, total: int) -> None:
        self._total = total

    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        rows = range(share.epoch * 100 + share.index, share.epoch * 100 + self._total, share.count)
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            yield Batch({"x": torch.tensor(part)}, len(part))


BINDER = Binder(Binding(), lambda x: x, Shape(COLUMNS))


def indexed(
    total: int, batch: int = 4, workers: int = 1, worker: int = 0, processes: int = 0, **more: Any
) -> IndexedLoader:
    bad = more.pop("bad", None)
    plan = IndexedPlan(total, batch, workers, seed=1, **more)
    source = Numbers(total, bad)
    return IndexedLoader(source, plan, worker, BINDER, None, Loading(), processes)


def streamed(
    rows: tuple[int, ...], batch: int = 4, workers: int = 1, worker: int = 0, **more: Any
) -> StreamedLoader:
    loading = Loading(shuffle_rows=more.pop("shuffle_rows", 9))
    plan = StreamedPlan(rows, batch, workers, seed=1, **more)
    return StreamedLoader(Shards(*rows), plan, worker, BINDER, None, loading)


def iterable(total: int, batch: int = 4) -> IterableLoader:
    def share(epoch: int) -> Share:
        return Share(0, 1, epoch, 0)

    return IterableLoader(Stream(total), share, batch, BINDER, None, Loading())


def read(loader: Loader, epoch: int = 0, first: int = 0, start: int = 0) -> list[list[int] | None]:
    steps = loader.epoch(epoch, first, start)
    try:
        return [None if step.batch is None else step.batch["x"].tolist() for step in steps]
    finally:
        steps.close()


def rows_of(batches: Any) -> list[int]:
    return [row for batch in batches if batch is not None for row in batch]


def test_unshuffled_rows_come_in_order() -> None:
    assert read(indexed(10, shuffle=False)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_shuffled_rows_are_those_of_the_plan() -> None:
    plan = IndexedPlan(10, 4, 1, seed=1)
    assert read(indexed(10), epoch=2) == [plan.indices(2, step, 0).tolist() for step in range(3)]


def test_more_steps_than_are_planned_at_once_are_all_there() -> None:
    total = PLAN_AHEAD * 2 + 3
    assert sorted(rows_of(read(indexed(total, batch=1)))) == list(range(total))


def test_a_worker_without_rows_gets_a_step_without_a_batch() -> None:
    loader = indexed(9, batch=4, workers=2, worker=0, shuffle=False)
    assert read(loader) == [[0, 1, 2, 3], None]
    with_rows = [(step.all_rows) for step in loader.epoch(0)]
    assert with_rows == [8, 1]


def test_an_epoch_may_begin_at_any_row() -> None:
    assert read(indexed(10, shuffle=False), start=7) == [[7, 8, 9]]


def test_batches_know_their_place() -> None:
    steps = list(indexed(10).epoch(3, first=1))
    assert [(s.batch.epoch, s.batch.index) for s in steps if s.batch] == [(3, 1), (3, 2)]


def test_streamed_rows_come_in_order_without_shuffle() -> None:
    assert read(streamed((5, 2, 4), shuffle=False)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5).map(tuple),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 30),
    st.booleans(),
)
def test_streamed_workers_get_every_row_once(
    rows: tuple[int, ...], batch: int, workers: int, window: int, shuffle: bool
) -> None:
    loaders = [
        streamed(rows, batch, workers, worker, shuffle=shuffle, shuffle_rows=window)
        for worker in range(workers)
    ]
    got = [row for loader in loaders for row in rows_of(read(loader, epoch=1))]
    assert sorted(got) == list(range(sum(rows)))


def test_streamed_sizes_are_those_of_the_plan() -> None:
    plan = StreamedPlan((9, 8), 4, 2, seed=1)
    for worker in (0, 1):
        sizes = [len(batch or []) for batch in read(streamed((9, 8), workers=2, worker=worker))]
        assert sizes == [plan.rows(step, worker) for step in range(plan.steps())]


def test_shuffled_rows_are_mixed_within_windows_only() -> None:
    rows = rows_of(read(streamed((12,), batch=2, shuffle_rows=6)))
    assert rows != list(range(12))
    assert [sorted(rows[:6]), sorted(rows[6:])] == [list(range(6)), list(range(6, 12))]


def test_the_mix_differs_between_epochs() -> None:
    loader = streamed((50,), shuffle_rows=50)
    assert read(loader, epoch=0) != read(loader, epoch=1)


def test_iterated_batches_say_nothing_of_the_others() -> None:
    loader = iterable(6)
    assert loader.steps() is None
    assert read(loader, epoch=1) == [[100, 101, 102, 103], [104, 105]]
    assert {step.all_rows for step in loader.epoch(0)} == {None}


RESUMED: dict[str, Callable[[], Loader]] = {
    "indexed": lambda: indexed(50, shuffle=False),
    "indexed shuffled": lambda: indexed(50),
    "indexed second worker": lambda: indexed(50, workers=2, worker=1),
    "streamed": lambda: streamed((7, 13, 5, 8), shuffle=False),
    "streamed shuffled": lambda: streamed((7, 13, 5, 8)),
    "streamed second worker": lambda: streamed((7, 13, 5, 8), workers=2, worker=1),
    "iterable": lambda: iterable(33),
}


@pytest.mark.parametrize("make", RESUMED.values(), ids=RESUMED.keys())
def test_from_any_step_on_the_batches_are_those_of_a_whole_epoch(
    make: Callable[[], Loader],
) -> None:
    whole = read(make(), epoch=1)
    for first in range(len(whole) + 1):
        assert read(make(), epoch=1, first=first) == whole[first:]


def test_a_transform_sees_each_batch_with_its_place() -> None:
    def mark(batch: Batch) -> Batch:
        return Batch({"x": batch["x"] * 0 + batch.index}, batch.size)

    plan = IndexedPlan(6, 2, 1, seed=0)
    loader = IndexedLoader(Numbers(6), plan, 0, BINDER, mark, Loading(), 0)
    assert read(loader, first=1) == [[1, 1], [2, 2]]


def test_an_error_while_reading_is_raised_where_its_batch_would_be() -> None:
    steps = indexed(12, shuffle=False, bad=5).epoch(0)
    first = next(steps).batch
    assert first is not None
    assert first["x"].tolist() == [0, 1, 2, 3]
    with pytest.raises(OSError, match="row 5 cannot be read"):
        next(steps)


def test_loader_processes_give_the_same_batches_from_any_step() -> None:
    assert read(indexed(30, processes=2), epoch=1, first=2) == read(indexed(30), 1, first=2)


def test_closing_ends_loader_processes_and_the_thread() -> None:
    steps = indexed(10_000, batch=1, processes=1).epoch(0)
    next(steps)
    steps.close()
    assert multiprocessing.active_children() == []
    assert "flambeau-loader" not in [thread.name for thread in threading.enumerate()]


@given(st.lists(st.integers(0, 12)), st.integers(1, 7))
def test_cut_keeps_all_rows_in_order_in_batches_of_one_size(sizes: list[int], size: int) -> None:
    numbers = iter(range(1000))
    blocks = [Batch({"x": torch.tensor([next(numbers) for _ in range(n)])}, n) for n in sizes]
    batches = list(cut(iter(blocks), size))
    assert rows_of(batch["x"].tolist() for batch in batches) == list(range(sum(sizes)))
    assert all(batch.size == len(batch["x"]) for batch in batches)
    assert all(batch.size == size for batch in batches[:-1])


def test_cut_does_not_copy_within_a_block() -> None:
    block = Batch({"x": torch.arange(4)}, 4)
    first, second = cut(iter([block]), 2)
    assert first["x"].data_ptr() == block["x"].data_ptr()
    assert second["x"].tolist() == [2, 3]


@pytest.mark.parametrize(
    "source", [Numbers(10), Shards(4, 6), Stream(10)], ids=["rows", "shards", "stream"]
)
def test_in_order_gives_all_rows_in_batches(source: Source) -> None:
    batches = [batch["x"].tolist() for batch in in_order(source, BINDER, 4)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_loader_processes_need_a_short_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/" + 75 * "x")
    source, plan = Numbers(6), IndexedPlan(6, 2, 1, 0)
    with pytest.raises(ConfigError, match=r"more than 75 characters.*set TMPDIR to a shorter one"):
        IndexedLoader(source, plan, 0, BINDER, None, Loading(), 1)
    IndexedLoader(source, plan, 0, BINDER, None, Loading(), 0)
