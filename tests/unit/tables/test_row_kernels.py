"""Kernels on rows against plain numpy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flambeau.tables import row_kernels
from flambeau.tables.index.hashing import shards_of
from flambeau.tables.index.unique_ids import Fold
from flambeau.tables.slabs import Slabs

FOLD = Fold()
ids = st.lists(st.one_of(st.sampled_from([-(2**63), 2**63 - 1]), st.integers(-9, 9)), max_size=50)


@given(ids, st.integers(1, 5))
def test_summing_by_is_a_plain_loop(values: list[int], width: int) -> None:
    array = np.array(values, dtype=np.int64)
    unique, inverse = FOLD(array)
    grads = np.random.default_rng(0).normal(size=(len(values), width))
    out = np.zeros((unique.size, width))
    row_kernels.sum_by(inverse, grads, out)
    for value, total in zip(unique, out, strict=True):
        np.testing.assert_allclose(total, grads[array == value].sum(axis=0))


def test_what_is_scattered_is_gathered_across_slabs() -> None:
    slabs = Slabs(3, np.float32)
    rows_in_slab = 1 << slabs.shift
    slabs.reserve(rows_in_slab + 10)
    rows = np.array([0, rows_in_slab - 1, rows_in_slab, rows_in_slab + 9])
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    row_kernels.scatter(rows, values, slabs.place)
    out = np.empty((5, 3), np.float32)
    asked = np.append(rows[::-1], -1)
    default = np.full(3, 7, np.float32)
    row_kernels.gather(asked, out, default, slabs.place)
    np.testing.assert_array_equal(out[:4], values[::-1])
    np.testing.assert_array_equal(out[4], default)


@given(st.lists(st.integers(-1, 20), max_size=40), st.integers(1, 40))
def test_gathering_and_scattering_are_plain_indexing(values: list[int], width: int) -> None:
    rows = np.array(values, dtype=np.int64)
    slabs = Slabs(width, np.float64)
    slabs.reserve(21)
    expected = np.random.default_rng(0).normal(size=(21, width))
    slabs.slab(0)[:21] = expected
    out, default = np.empty((rows.size, width)), np.full(width, 7.0)
    row_kernels.gather(rows, out, default, slabs.place)
    np.testing.assert_array_equal(out, np.where(rows[:, None] < 0, default, expected[rows]))
    some = np.unique(rows)
    new = np.arange(some.size * width, dtype=np.float64).reshape(some.size, width)
    row_kernels.scatter(some, new, slabs.place)
    expected[some[some >= 0]] = new[some >= 0]
    np.testing.assert_array_equal(slabs.slab(0)[:21], expected)


def test_slabs_on_files_work_alike_and_leave_no_name(tmp_path) -> None:  # type: ignore[no-untyped-def]
    slabs = Slabs(2, np.float64, tmp_path)
    slabs.reserve(4)
    slabs.slab(0)[3] = 1.5
    out = np.empty((1, 2))
    row_kernels.gather(np.array([3]), out, out[0], slabs.place)
    assert out.tolist() == [[1.5, 1.5]]
    assert not list(tmp_path.iterdir())


def test_ids_spread_evenly_over_shards() -> None:
    counts = np.bincount(shards_of(np.arange(30_000), 3), minlength=3)
    assert counts.min() > 9_500
