"""Batches of tasks: the same whoever reads them, from any batch on, and every row once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.config import Binding, Loading
from flambeau.coordination.plans import IndexedPlan
from flambeau.coordination.tasks import DynamicPlan, Task
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.loader import Transform
from flambeau.data.source import IndexedSource, IterableSource, Shard, Share, StreamedSource
from flambeau.data.task_reader import IndexedTasks, SharedTasks, StreamedTasks, TaskReader

BINDER = Binder(Binding(), lambda x: x, Shape(("x",)))
SIZE = 4


class Numbers(IndexedSource):
    """Rows whose value is their number."""

    columns = ("x",)

    def __init__(self, total: int) -> None:
        self._total = total

    def __len__(self) -> int:
        return self._total

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        return Batch({"x": torch.from_numpy(rows.copy())}, len(rows))


class Shards(StreamedSource):
    """Shards of numbers that begin at another thousand each, read three rows at a time."""

    def __init__(self, *rows: int) -> None:
        self._shards = [Shard("memory", part, count) for part, count in enumerate(rows)]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("x", pa.int64())])

    def shards(self) -> Sequence[Shard]:
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        last = shard.rows if stop is None else stop
        for begin in range(start, last, 3):
            numbers = np.arange(begin, min(begin + 3, last)) + 1000 * shard.part
            yield pa.RecordBatch.from_pydict({"x": numbers})


class Stream(IterableSource):
    """Every `count`-th number; each epoch begins at another thousand."""

    def __init__(self, total: int) -> None:
        self._total = total

    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        rows = [share.epoch * 1000 + row for row in range(share.index, self._total, share.count)]
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            yield Batch({"x": torch.tensor(part)}, len(part))


def indexed(
    total: int, size: int = SIZE, *, shuffle: bool = True, transform: Transform | None = None
) -> IndexedTasks:
    order = IndexedPlan(total, size, 1, seed=1, shuffle=shuffle).order
    return IndexedTasks(Numbers(total), order, BINDER, transform, size)


def streamed(
    rows: Sequence[int], size: int = SIZE, *, window: int | None = 8, seed: int = 1
) -> StreamedTasks:
    whole = None if window is None else Loading(shuffle_rows=window).window(size)
    return StreamedTasks(Shards(*rows), BINDER, None, size, seed, whole)


def shared(total: int, shares: int = 2, size: int = SIZE) -> SharedTasks:
    return SharedTasks(Stream(total), shares, 1, BINDER, None, size)


def rows_in(reader: TaskReader, task: Task) -> list[tuple[int, list[int]]]:
    return [(number, batch["x"].tolist()) for number, batch in reader.read(task)]


def flat(batches: Sequence[tuple[int, list[int]]]) -> list[int]:
    return [row for _, rows in batches for row in rows]


def all_rows(reader: TaskReader, plan: DynamicPlan) -> list[int]:
    """What a worker gets that takes all tasks of an epoch."""
    rows: list[int] = []
    while (task := plan.take(0)) is not None:
        rows += flat(rows_in(reader, task))
    return rows


def resumed(task: Task, first_batch: int) -> Task:
    return Task(task.epoch, task.number, task.start, task.stop, first_batch)


READERS: dict[str, tuple[Callable[[], TaskReader], Task]] = {
    "rows": (lambda: indexed(50), Task(1, 2, 8, 31)),
    "rows in order": (lambda: indexed(50, shuffle=False), Task(1, 2, 8, 31)),
    "shards": (lambda: streamed((9, 40, 30)), Task(1, 1, 0, 40)),
    "shards with an odd window": (lambda: streamed((9, 43), window=10), Task(1, 1, 0, 43)),
    "shards in order": (lambda: streamed((9, 43), window=None), Task(1, 1, 0, 43)),
    "a part of a shard": (lambda: streamed((9, 43)), Task(1, 1, 12, 38)),
    "shares": (lambda: shared(41), Task(1, 1, 0, 1 << 40)),
}


@pytest.mark.parametrize(("make", "task"), READERS.values(), ids=READERS.keys())
def test_a_task_has_the_same_batches_whoever_reads_it_and_whatever_it_read_before(
    make: Callable[[], TaskReader], task: Task
) -> None:
    fresh, used = make(), make()
    rows_in(used, Task(0, 0, 0, 9))
    next(iter(used.read(task)))
    assert rows_in(used, task) == rows_in(fresh, task)


@pytest.mark.parametrize(("make", "task"), READERS.values(), ids=READERS.keys())
def test_from_any_batch_on_a_task_goes_on_exactly(
    make: Callable[[], TaskReader], task: Task
) -> None:
    whole = rows_in(make(), task)
    assert [number for number, _ in whole] == list(range(len(whole)))
    for first in range(len(whole) + 1):
        assert rows_in(make(), resumed(task, first)) == whole[first:]


@settings(max_examples=25)
@given(st.integers(1, 70), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_tasks_of_rows_have_every_row_once(
    total: int, size: int, workers: int, shuffle: bool
) -> None:
    plan = DynamicPlan.of_rows(total, batch_size=size, workers=workers)
    rows = all_rows(indexed(total, size, shuffle=shuffle), plan)
    assert sorted(rows) == list(range(total))


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.integers(1, 7),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 3),
)
def test_tasks_of_shards_have_every_row_once(
    counts: list[int], size: int, window: int | None, workers: int | None
) -> None:
    plan = DynamicPlan.of_shards(counts, batch_size=size, workers=workers, window=window)
    rows = all_rows(streamed(counts, size, window=window), plan)
    expected = [1000 * part + row for part, count in enumerate(counts) for row in range(count)]
    assert sorted(rows) == expected


@settings(max_examples=25)
@given(st.integers(1, 200), st.none() | st.integers(1, 60), st.integers(1, 8))
def test_rows_have_the_same_places_however_a_shard_is_cut(
    rows: int, window: int | None, workers: int
) -> None:
    cut = DynamicPlan.of_shards([rows, 9], batch_size=SIZE, workers=workers, shuffle=False)
    whole = DynamicPlan.of_shards([rows, 9], batch_size=SIZE, shuffle=False)
    found = [all_rows(streamed((rows, 9), window=window), plan) for plan in (cut, whole)]
    assert found[0] == found[1]


def test_tasks_of_one_window_read_it_once() -> None:
    class Counted(Shards):
        reads = 0

        def read(self, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
            self.reads += 1
            return super().read(*args, **kwargs)

    source = Counted(40)
    reader = StreamedTasks(source, BINDER, None, SIZE, 1, 400)
    plan = DynamicPlan.of_shards([40], batch_size=SIZE, workers=2)
    assert sorted(all_rows(reader, plan)) == list(range(40))
    assert source.reads == 1


def test_tasks_of_shares_have_every_row_once() -> None:
    tasks = [Task(2, number, 0, 1 << 40) for number in range(3)]
    rows = [row for task in tasks for row in flat(rows_in(shared(20, shares=3), task))]
    assert sorted(rows) == [2000 + row for row in range(20)]


def test_batches_are_as_many_as_the_task_says_and_all_full_but_the_last() -> None:
    for make, task in (READERS[name] for name in ("rows", "shards", "a part of a shard")):
        sizes = [len(rows) for _, rows in rows_in(make(), task)]
        assert len(sizes) == task.batches(SIZE)
        assert all(size == SIZE for size in sizes[:-1])


def test_positions_are_those_of_the_epochs_order() -> None:
    order = IndexedPlan(50, SIZE, 1, seed=1).order(3)
    rows = flat(rows_in(indexed(50), Task(3, 0, 8, 16)))
    assert rows == order(np.arange(8, 16)).tolist()


def test_without_a_window_rows_stay_in_order() -> None:
    reader = streamed((3, 10), window=None)
    assert rows_in(reader, Task(0, 1, 0, 10)) == [
        (0, [1000, 1001, 1002, 1003]),
        (1, [1004, 1005, 1006, 1007]),
        (2, [1008, 1009]),
    ]


def test_rows_are_mixed_within_windows_of_whole_batches_only() -> None:
    rows = flat(rows_in(streamed((32,), window=11), Task(0, 0, 0, 32)))
    assert rows != list(range(32))
    for start in range(0, 32, 8):
        assert sorted(rows[start : start + 8]) == list(range(start, start + 8))


def test_a_window_smaller_than_a_batch_is_a_batch() -> None:
    rows = flat(rows_in(streamed((40,), window=1), Task(0, 0, 0, 40)))
    assert rows != list(range(40))
    assert sorted(rows[:SIZE]) == list(range(SIZE))


@pytest.mark.parametrize(
    ("changed", "reader"),
    [
        (Task(1, 0, 0, 40), streamed((40, 40))),
        (Task(0, 1, 0, 40), streamed((40, 40))),
        (Task(0, 0, 0, 40), streamed((40, 40), seed=2)),
    ],
    ids=["epoch", "shard", "seed"],
)
def test_the_mix_depends_on_seed_epoch_and_shard(changed: Task, reader: StreamedTasks) -> None:
    first = flat(rows_in(streamed((40, 40)), Task(0, 0, 0, 40)))
    assert [row % 1000 for row in flat(rows_in(reader, changed))] != first


def test_a_share_of_an_iterator_knows_its_epoch() -> None:
    assert flat(rows_in(shared(6), Task(1, 1, 0, 1 << 40))) == [1001, 1003, 1005]


def test_batches_of_different_tasks_have_different_places() -> None:
    tasks = [Task(2, number, 12 * number, 12 * number + 12) for number in range(3)]
    reader = indexed(36)
    places = [(batch.epoch, batch.index) for task in tasks for _, batch in reader.read(task)]
    assert {epoch for epoch, _ in places} == {2}
    assert len(set(places)) == 9


@pytest.mark.parametrize("first", [0, 2])
def test_a_transform_sees_the_place_that_augmentation_is_keyed_by(first: int) -> None:
    seen: list[Any] = []

    def mark(batch: Batch) -> Batch:
        seen.append((batch.epoch, batch.index))
        return Batch({"x": -batch["x"]}, batch.size)

    task = Task(1, 1, 0, 12, first)
    rows = flat(rows_in(indexed(12, transform=mark), task))
    assert all(row <= 0 for row in rows)
    places = [(batch.epoch, batch.index) for _, batch in indexed(12).read(Task(1, 1, 0, 12))]
    assert seen == places[first:]


def test_labels_may_be_missing_where_a_mask_is_made_of_them() -> None:
    class Sparse(Shards):
        @property
        def schema(self) -> pa.Schema:
            return pa.schema([("x", pa.int64()), ("y", pa.float32())])

        def read(self, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
            for records in super().read(*args, **kwargs):
                yield records.append_column("y", pa.array([None] * len(records), pa.float32()))

    binder = Binder(Binding(label={"task": "y"}), lambda x: x, Shape(("x", "y")))
    reader = StreamedTasks(Sparse(6), binder, None, SIZE, 1, None)
    labels = torch.cat([batch["y"] for _, batch in reader.read(Task(0, 0, 0, 6))])
    assert labels.isnan().all()
