"""Which ids get a row."""

import numpy as np
import pytest

from flambeau.config.optimizer import optim
from flambeau.config.tables import Admission, Initializer, MinCount, Probability, TableSpec
from flambeau.errors import CheckpointError
from flambeau.tables.table import Table

ID = np.array([-(2**63)])


def table(admission: Admission, name: str = "t") -> Table:
    start = Initializer(kind="constant", value=3.0)
    spec = TableSpec(name, 2, dtype="fp64", admission=admission, initializer=start)
    return Table(spec, 0, optim("sgd", lr=1.0))


def push(subject: Table, ids: np.ndarray) -> None:
    subject.push(ids, np.ones((ids.size, 2)))


def test_a_row_is_made_at_the_nth_appearance_and_learns_from_that_gradient_on() -> None:
    subject = table(MinCount(3, cells=1024))
    for expected_rows in (0, 0, 1, 1):
        push(subject, ID)
        assert len(subject) == expected_rows
    assert subject.pull(ID, training=False).tolist() == [[1.0, 1.0]]


def test_an_id_that_the_next_push_admits_reads_as_its_first_values_in_training() -> None:
    spec = TableSpec("t", 2, admission=MinCount(2, cells=1024))
    subject, free = Table(spec, 0), Table(TableSpec("t", 2), 0)
    first = free.pull(ID, training=True)
    assert not subject.pull(ID, training=True).any()
    subject.push(ID, np.zeros((1, 2)))
    np.testing.assert_array_equal(subject.pull(ID, training=True), first)
    assert not subject.pull(ID, training=False).any()


def test_looking_does_not_count() -> None:
    subject = table(MinCount(2, cells=1024))
    for _ in range(5):
        subject.pull(ID, training=True)
    push(subject, ID)
    assert len(subject) == 0


def test_those_who_are_turned_away_do_not_disturb_those_who_are_not() -> None:
    subject = table(MinCount(2, cells=1 << 16))
    push(subject, np.arange(0, 10, 2))
    subject.push(np.arange(10), np.arange(20.0).reshape(10, 2))
    even = subject.pull(np.arange(0, 10, 2), training=False)
    np.testing.assert_array_equal(even, 3.0 - np.arange(20.0).reshape(10, 2)[::2])
    assert (subject.pull(np.arange(1, 10, 2), training=False) == 3.0).all()


def test_admitted_and_rejected_are_counted() -> None:
    subject = table(MinCount(2, cells=1 << 16))
    push(subject, np.arange(5))
    push(subject, np.arange(7))
    counters = subject.counters
    assert (counters.rows, counters.admitted, counters.rejected) == (5, 5, 7)


def test_chance_admits_its_share() -> None:
    subject = table(Probability(0.25))
    push(subject, np.arange(20_000))
    assert 4_700 < len(subject) < 5_300


def test_the_coin_depends_on_table_id_and_step_alone() -> None:
    ids = np.arange(1000)

    def admitted(name: str, order: np.ndarray, step: int) -> set[int]:
        subject = table(Probability(0.5), name)
        subject.push(order, np.zeros((1000, 2)), step=step)
        return set(subject._storage.index.entries()[0].tolist())

    first = admitted("t", ids, 1)
    assert admitted("t", ids[::-1].copy(), 1) == first
    assert admitted("t", ids, 2) != first
    assert admitted("u", ids, 1) != first


def test_an_id_that_may_be_admitted_by_chance_reads_as_the_default_row() -> None:
    spec = TableSpec("t", 2, admission=Probability(0.5))
    assert not Table(spec, 0).pull(ID, training=True).any()


def test_counts_survive_a_dump_onto_other_shards() -> None:
    first, second = table(MinCount(2, cells=1024)), table(MinCount(2, cells=1024))
    push(first, np.array([1]))
    push(second, np.array([2]))
    merged = table(MinCount(2, cells=1024))
    merged.state_load([first.state_dump(), second.state_dump()], 0)
    push(merged, np.array([1, 2, 3]))
    assert len(merged) == 2


def test_a_sketch_of_another_size_is_refused() -> None:
    dump = table(MinCount(2, cells=1024)).state_dump()
    with pytest.raises(CheckpointError, match=r"1024 cells, .* 2048; keep `cells` unchanged"):
        table(MinCount(2, cells=2048)).state_load([dump], 0)
