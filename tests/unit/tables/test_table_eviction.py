"""Which rows leave."""

from typing import Any

import numpy as np
import pytest

from flambeau.config.optimizer import optim
from flambeau.config.tables import Capacity, Initializer, TableSpec, TimeToLive
from flambeau.tables import eviction
from flambeau.tables.index.index_kernels import SUBTABLES
from flambeau.tables.table import Table


def table(setting: Any, shards: int = 1) -> Table:
    start = Initializer(kind="constant", value=0.0)
    spec = TableSpec("t", 1, eviction=setting, initializer=start)
    return Table(spec, 0, optim("sgd", lr=1.0), shards=shards)


def push(subject: Table, *ids: int, **sync_point: Any) -> None:
    subject.push(np.array(ids), -np.ones((len(ids), 1), np.float32), **sync_point)


def has(subject: Table, *ids: int) -> list[bool]:
    """Every row was moved away from zero by its first push."""
    return [bool(v) for v in subject.pull(np.array(ids), training=False)[:, 0]]


def test_a_row_leaves_after_so_many_steps_without_training() -> None:
    subject = table(TimeToLive(steps=3))
    push(subject, 1, 2, step=1)
    push(subject, 2, step=2)
    push(subject, 3, step=3)
    assert has(subject, 1, 2, 3) == [True, True, True]
    push(subject, 3, step=4)
    assert has(subject, 1, 2, 3) == [False, True, True]


def test_a_row_in_the_push_that_would_make_it_leave_stays_as_it_is() -> None:
    subject = table(TimeToLive(steps=3))
    push(subject, 1, step=1)
    push(subject, 1, step=50)
    assert subject.pull(np.array([1]), training=False).tolist() == [[2.0]]


@pytest.mark.parametrize("setting", [TimeToLive(seconds=86400.0), TimeToLive(days=1.0)])
def test_a_row_leaves_after_so_much_time_and_not_before(setting: TimeToLive) -> None:
    subject = table(setting)
    push(subject, 1, now=1e9 + 0.9)
    push(subject, 2, now=1e9 + 86400.8)
    assert has(subject, 1) == [True]
    push(subject, 2, now=1e9 + 86401.0)
    assert has(subject, 1, 2) == [False, True]


def test_a_large_table_is_swept_within_as_many_pushes_as_it_has_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "FEW_ROWS", 10)
    subject = table(TimeToLive(steps=1))
    push(subject, *range(4000))
    left = []
    for _ in range(SUBTABLES):
        before = len(subject)
        push(subject, 5000)
        left.append(before - len(subject))
    assert len(subject) == 1
    assert max(left) < 30


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_there_are_never_more_rows_than_the_capacity(policy: str) -> None:
    subject = table(Capacity(100, policy=policy))
    rng = np.random.default_rng(0)
    for _ in range(50):
        push(subject, *rng.choice(1000, 60, replace=False).tolist())
        assert len(subject) <= 100
    assert len(subject) == 100


def test_the_least_recently_trained_leave_first() -> None:
    subject = table(Capacity(3))
    for ids in ([1, 2, 3], [1], [3], [4]):
        push(subject, *ids)
    assert has(subject, 1, 2, 3, 4) == [True, False, True, True]


def test_the_least_often_trained_leave_first() -> None:
    subject = table(Capacity(3, policy="lfu"))
    for ids in ([1, 2, 3], [1, 2], [3], [3, 2], [4]):
        push(subject, *ids)
    assert has(subject, 1, 2, 3, 4) == [False, True, True, True]


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_row_of_the_push_stays_even_if_it_is_the_least_used(policy: str) -> None:
    subject = table(Capacity(2, policy=policy))
    for ids in ([1], [2], [2], [1, 3]):
        push(subject, *ids)
    assert has(subject, 1, 2, 3) == [True, False, True]
    assert subject.pull(np.array([1]), training=False).tolist() == [[2.0]]


def test_a_push_with_more_ids_than_the_capacity_is_trained_and_cut_by_the_next() -> None:
    subject = table(Capacity(4))
    push(subject, *range(10))
    assert has(subject, *range(10)) == [True] * 10
    push(subject, 20)
    assert len(subject) == 4


def test_the_capacity_is_shared_among_shards() -> None:
    subject = table(Capacity(10), shards=3)
    for start in range(0, 40, 4):
        push(subject, *range(start, start + 4))
    assert len(subject) == 4


def test_a_large_table_keeps_its_capacity_and_drops_rows_that_are_little_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "FEW_ROWS", 100)
    monkeypatch.setattr(eviction, "SAMPLE", 500)
    subject = table(Capacity(20_000))
    for start in range(0, 20_000, 2_000):
        push(subject, *range(start, start + 2_000))
    push(subject, *range(100_000, 101_000))
    assert len(subject) == 20_000
    survivors = np.array(has(subject, *range(20_000))).reshape(10, 2_000).mean(axis=1)
    assert survivors[0] < 0.7
    assert (survivors[3:] == 1.0).all()


def test_a_large_table_is_not_looked_through_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "FEW_ROWS", 100)
    monkeypatch.setattr(eviction, "SAMPLE", 500)
    subject = table(Capacity(20_000))
    push(subject, *range(20_000))
    index, looked_at = subject._storage.index, []
    entries = type(index).entries

    def watched(self: Any, first: int = 0, last: int = SUBTABLES) -> Any:
        looked_at.append(last - first)
        return entries(self, first, last)

    monkeypatch.setattr(type(index), "entries", watched)
    push(subject, *range(30_000, 30_100))
    assert sum(looked_at) < SUBTABLES / 8


def test_a_capacity_that_was_lowered_is_reached_at_the_next_push(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "FEW_ROWS", 100)
    monkeypatch.setattr(eviction, "SAMPLE", 300)
    subject = table(Capacity(1_000))
    subject.state_load([{**subject.state_dump(), "next_part": 1000}], 0)
    subject.load(np.arange(20_000), np.ones((20_000, 1), np.float32))
    push(subject, 50_000)
    assert len(subject) == 1_000


def test_which_of_equal_rows_leave_does_not_depend_on_who_came_first() -> None:
    one, other = table(Capacity(50)), table(Capacity(50))
    push(one, *range(80))
    push(other, *reversed(range(80)))
    push(one, 100)
    push(other, 100)
    assert has(one, *range(80)) == has(other, *range(80))


def test_evicted_rows_are_counted_and_their_memory_is_used_again() -> None:
    subject = table(Capacity(100))
    for start in range(0, 1000, 50):
        push(subject, *range(start, start + 50))
    assert subject.counters.evicted == 900
    assert subject._storage.index.rows_ever == 100


def test_an_evicted_id_comes_back_with_first_values() -> None:
    subject = table(Capacity(1))
    for _ in range(3):
        push(subject, 1)
    push(subject, 2)
    push(subject, 1)
    assert subject.pull(np.array([1]), training=False).tolist() == [[1.0]]


def test_loaded_rows_keep_when_they_were_trained() -> None:
    subject = table(Capacity(2))
    ones = np.ones((2, 1), np.float32)
    subject.load(np.array([1, 2]), ones, seen=np.array([9, 8], np.uint32))
    push(subject, 3, step=10)
    assert has(subject, 1, 2, 3) == [True, False, True]
