"""The sketch against exact counts."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flambeau.tables.sketch import CountMinSketch

EXTREMES = [-(2**63), 2**63 - 1, 0]
batch = st.sets(st.one_of(st.sampled_from(EXTREMES), st.integers(-2000, 2000)), max_size=60)


def as_ids(values: object) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]


@given(st.lists(batch, max_size=12))
def test_it_counts_too_many_at_times_and_never_too_few(batches: list[set[int]]) -> None:
    sketch, exact = CountMinSketch(1024), Counter[int]()
    for ids in batches:
        sketch.add(as_ids(ids))
        exact.update(ids)
    known = as_ids(exact)
    assert (sketch.estimate(known) >= as_ids(exact.values())).all()


def test_with_room_enough_it_is_exact() -> None:
    sketch = CountMinSketch(1 << 18)
    for size in (1000, 500, 100):
        counts = sketch.add(np.arange(size))
    assert counts.tolist() == [3] * 100
    assert (
        sketch.estimate(np.arange(1200)).tolist() == [3] * 100 + [2] * 400 + [1] * 500 + [0] * 200
    )


def test_only_the_least_cells_of_an_id_are_raised() -> None:
    crowded = CountMinSketch(1024)
    rng = np.random.default_rng(0)
    for _ in range(20):
        crowded.add(rng.choice(5000, 400, replace=False))
    # Raising every cell would sum to one count for each hash and appearance.
    assert crowded.cells.sum() < 20 * 400 * 3


def test_the_order_of_a_batch_does_not_matter() -> None:
    ids = np.arange(3000)
    one, other = CountMinSketch(1024), CountMinSketch(1024)
    for _ in range(2):
        one.add(ids)
        other.add(ids[::-1].copy())
    np.testing.assert_array_equal(one.cells, other.cells)


def test_counts_end_at_255() -> None:
    sketch = CountMinSketch(1024)
    for _ in range(300):
        counts = sketch.add(as_ids([7]))
    assert counts.tolist() == [255]


def test_merged_sketches_know_the_ids_of_both() -> None:
    one, other = CountMinSketch(1 << 16), CountMinSketch(1 << 16)
    one.add(as_ids([1]))
    for _ in range(4):
        other.add(as_ids([2]))
    one.merge(other.cells)
    assert one.estimate(as_ids([1, 2])).tolist() == [1, 4]
