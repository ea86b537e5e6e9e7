"""Snapshots against a copy made when they began."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.config.optimizer import optim
from flambeau.config.tables import Capacity, TableSpec
from flambeau.tables.saved import snapshot as snapshots
from flambeau.tables.saved.snapshot import Chunk, TableSnapshot
from flambeau.tables.table import Table

Content = dict[int, tuple[Any, ...]]


def table(capacity: int | None = None, dtype: Any = "fp32") -> Table:
    eviction = None if capacity is None else Capacity(capacity)
    return Table(TableSpec("t", 2, eviction=eviction, dtype=dtype), 0, optim("adagrad", lr=0.1))


def push(subject: Table, ids: Any) -> None:
    ids = np.array(list(ids), dtype=np.int64)
    grads = np.sin(ids[:, None] + subject.steps + np.arange(2.0))
    subject.push(ids, grads)


def rows_of(chunk: Chunk) -> Content:
    seen = [None] * chunk.ids.size if chunk.seen is None else chunk.seen.tolist()
    rows = zip(chunk.ids.tolist(), chunk.values.tolist(), chunk.state.tolist(), seen, strict=True)
    return {row[0]: row[1:] for row in rows}


def rest_of(snapshot: TableSnapshot, max_rows: int = 5) -> Content:
    found: Content = {}
    while (chunk := snapshot.take(max_rows)) is not None:
        assert 0 < chunk.ids.size <= max_rows
        assert not found.keys() & rows_of(chunk).keys(), "a row was given twice"
        found |= rows_of(chunk)
    return found


def content(subject: Table) -> Content:
    return rest_of(subject.begin_snapshot())


batch = st.sets(st.integers(0, 60), max_size=15)
operations = st.lists(st.one_of(batch, st.integers(1, 9)), max_size=25)


@settings(max_examples=60)
@given(st.sampled_from([None, 25]), batch, batch, operations)
def test_it_is_the_table_at_its_beginning_whatever_happens_meanwhile(
    capacity: int | None, before: set[int], more: set[int], meanwhile: list[set[int] | int]
) -> None:
    subject = table(capacity)
    for ids in (before, more):
        push(subject, ids)
    expected = content(subject)
    snapshot, found = subject.begin_snapshot(), dict[int, Any]()
    assert snapshot.rows == len(expected)
    for operation in meanwhile:
        if isinstance(operation, int):
            chunk = snapshot.take(operation)
            found |= {} if chunk is None else rows_of(chunk)
        else:
            push(subject, operation)
    assert found | rest_of(snapshot) == expected


@settings(max_examples=60)
@given(batch, batch, operations)
def test_what_was_touched_together_with_what_was_removed_makes_the_last_full_one_current(
    before: set[int], after: set[int], meanwhile: list[set[int] | int]
) -> None:
    subject = table(capacity=25)
    subject.track_touched = True
    push(subject, before)
    full = content(subject)
    push(subject, after)
    for operation in meanwhile:
        push(subject, operation if isinstance(operation, set) else {operation + 100})
    snapshot = subject.begin_snapshot(touched_only=True)
    changes = rest_of(snapshot)
    assert snapshot.rows == len(changes)
    kept = {i: row for i, row in full.items() if i not in snapshot.removed}
    assert kept | changes == content(subject)


def test_only_touched_rows_are_in_a_touched_snapshot() -> None:
    subject = table()
    subject.track_touched = True
    push(subject, range(100))
    content(subject)
    push(subject, [3, 200])
    assert rest_of(subject.begin_snapshot(touched_only=True)).keys() == {3, 200}
    assert rest_of(subject.begin_snapshot(touched_only=True)).keys() == {3, 200}


def test_loaded_rows_count_as_touched_and_a_forgotten_one_as_removed() -> None:
    subject = table()
    subject.track_touched = True
    push(subject, range(5))
    content(subject)
    subject.load(np.array([1, 9]), np.zeros((2, 2), np.float32))
    subject.forget(np.array([2]))
    snapshot = subject.begin_snapshot(touched_only=True)
    assert snapshot.removed.tolist() == [2]
    assert rest_of(snapshot).keys() == {1, 9}


def test_an_abandoned_snapshot_changes_nothing() -> None:
    subject = table(capacity=6)
    subject.track_touched = True
    push(subject, [1, 2, 3])
    content(subject)
    push(subject, [2, 4, 5, 6])
    abandoned = subject.begin_snapshot()
    abandoned.take(1)
    push(subject, [7])
    abandoned.abandon()
    assert abandoned.take(10) is None
    snapshot = subject.begin_snapshot(touched_only=True)
    (gone,) = snapshot.removed.tolist()
    assert gone in (1, 3)
    assert rest_of(snapshot).keys() == {2, 4, 5, 6, 7}


def test_loading_during_a_snapshot_does_not_show_in_it() -> None:
    subject = table()
    push(subject, [1, 2])
    expected = content(subject)
    snapshot = subject.begin_snapshot()
    subject.load(np.array([2, 3, 3]), np.ones((3, 2), np.float32))
    subject.forget(np.array([1]))
    assert rest_of(snapshot) == expected


def test_values_are_given_as_they_are_stored() -> None:
    subject = table(dtype="bf16")
    push(subject, [1])
    chunk = subject.begin_snapshot().take(10)
    assert chunk is not None
    assert (chunk.values.dtype, chunk.state.dtype, chunk.seen) == (np.uint16, np.float32, None)


def test_an_empty_table_gives_nothing() -> None:
    snapshot = table().begin_snapshot()
    assert snapshot.rows == 0
    assert snapshot.take(10) is None


def test_there_is_one_at_a_time() -> None:
    subject = table()
    subject.begin_snapshot()
    with pytest.raises(AssertionError, match="neither finished nor abandoned"):
        subject.begin_snapshot()


def test_a_search_for_few_rows_among_many_comes_back_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "ENTRIES_AT_ONCE", 1000)
    subject = table()
    subject.track_touched = True
    push(subject, range(20_000))
    content_before = subject.begin_snapshot()
    while content_before.take(10_000) is not None:
        pass
    push(subject, range(0, 20_000, 100))
    snapshot = subject.begin_snapshot(touched_only=True)
    first = snapshot.take(200)
    assert first is not None
    assert first.ids.size < 50
    assert len(rows_of(first) | rest_of(snapshot, 200)) == 200
