"""What is put into a table and taken out of it as a whole."""

from typing import Any

import numpy as np
import pytest

from flambeau.config.optimizer import optim
from flambeau.config.tables import Capacity, MinCount, TableSpec
from flambeau.tables.inputs import for_kernels
from flambeau.tables.precision import narrow, widen
from flambeau.tables.table import Table, TableCounters

IDS = np.array([2**63 - 1, -(2**63), 7], dtype=np.int64)


def table(**fields: Any) -> Table:
    return Table(TableSpec("t", 2, **fields), 0, optim("adagrad", lr=0.1))


def values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32)


def contents(subject: Table) -> dict[int, tuple[Any, ...]]:
    snapshot = subject.begin_snapshot()
    found = {}
    while (chunk := snapshot.take(2)) is not None:
        seen = [None] * chunk.ids.size if chunk.seen is None else chunk.seen.tolist()
        rows = zip(
            chunk.ids.tolist(), chunk.values.tolist(), chunk.state.tolist(), seen, strict=True
        )
        found.update({row[0]: row[1:] for row in rows})
    return found


def test_loaded_rows_are_there_without_admission() -> None:
    subject = table(admission=MinCount(5, cells=1024))
    subject.load(IDS, values())
    np.testing.assert_array_equal(subject.pull(IDS, training=False), values())
    assert subject.counters.admitted == 0


def test_loading_overwrites_values_and_state() -> None:
    subject, fresh = table(), table()
    subject.push(IDS, values(1))
    for each in (subject, fresh):
        each.load(IDS, values())
    assert contents(subject) == contents(fresh)


def test_the_last_of_equal_ids_wins() -> None:
    subject = table()
    subject.load(np.array([5, 5]), values()[:2])
    np.testing.assert_array_equal(subject.pull(np.array([5]), training=False), values()[1:2])


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_halves_are_loaded_as_stored_or_as_computed(dtype: Any) -> None:
    stored, computed = table(dtype=dtype), table(dtype=dtype)
    bits = narrow(values(), dtype)
    stored.load(IDS, bits)
    computed.load(IDS, widen(bits, dtype))
    assert contents(stored) == contents(computed)


def test_a_table_goes_on_from_its_snapshot_as_if_nothing_had_happened() -> None:
    fields = {"eviction": Capacity(40), "admission": MinCount(2, cells=1024)}
    subject, copy = table(**fields), table(**fields)
    rng = np.random.default_rng(0)

    def train(some: list[Table]) -> None:
        for _ in range(20):
            ids, grads = rng.choice(80, 20, replace=False), rng.normal(size=(20, 2))
            for each in some:
                each.push(ids, grads)

    train([subject])
    copy.state_load([subject.state_dump()], 0)
    snapshot = subject.begin_snapshot()
    while (chunk := snapshot.take(7)) is not None:
        copy.load(chunk.ids, chunk.values, chunk.state, chunk.seen)
    train([subject, copy])
    assert contents(copy) == contents(subject)
    assert copy.counters == subject.counters


def test_dumps_of_several_shards_become_one() -> None:
    first, second = table(), table()
    first.push(IDS[:1], values()[:1])
    second.push(IDS, values(), step=10)
    whole, other = table(), table()
    for shard, each in enumerate((whole, other)):
        each.state_load([first.state_dump(), second.state_dump()], shard)
    assert (whole.steps, other.steps) == (10, 10)
    assert (whole.counters.admitted, other.counters.admitted) == (4, 0)


def test_counters_tell_what_is_there() -> None:
    subject = table()
    subject.push(IDS, values())
    assert subject.counters == TableCounters(3, subject.nbytes, 3, 0, 0)


def test_forgotten_ids_have_no_row() -> None:
    subject = table()
    subject.load(IDS, values())
    subject.forget(np.array([7, 8]))
    assert contents(subject).keys() == set(IDS[:2].tolist())
    assert subject.counters.evicted == 0


def test_the_number_of_the_update_can_be_given() -> None:
    subject = table()
    subject.push(IDS, values(), step=5)
    subject.push(IDS, values())
    assert subject.steps == 6


def test_received_memory_is_taken_as_it_is() -> None:
    subject, other = table(), table()
    grads = values()
    received = np.frombuffer(b"x" + grads.tobytes(), np.float32, offset=1).reshape(3, 2)
    other.push(np.frombuffer(IDS.tobytes(), np.int64), received)
    subject.push(IDS, grads)
    assert contents(other) == contents(subject)


def test_read_only_memory_is_passed_on_and_not_copied() -> None:
    array = np.frombuffer(bytes(32), np.int64)
    passed = for_kernels(array, np.int64)
    assert passed.ctypes.data == array.ctypes.data
    assert passed.flags.writeable


def test_the_gradients_of_the_caller_are_not_clipped() -> None:
    subject = Table(TableSpec("t", 2), 0, optim("sgd", lr=1.0, clip=0.1))
    grads = values()
    subject.push(IDS, grads)
    np.testing.assert_array_equal(grads, values())
