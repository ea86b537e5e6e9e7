"""The index against a plain dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flambeau.tables.index.index import Index
from flambeau.tables.index.index_kernels import SUBTABLES

EXTREMES = [-(2**63), 2**63 - 1, 0, -1, 1]
ids = st.lists(st.one_of(st.sampled_from(EXTREMES), st.integers(-40, 40)), max_size=60)


def as_array(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(st.sampled_from(["insert", "remove", "find"]), ids), max_size=12))
def test_it_behaves_like_a_dict_of_rows(operations: list[tuple[str, list[int]]]) -> None:
    index, model = Index(), dict[int, int]()
    for operation, batch in operations:
        array = as_array(batch)
        if operation == "insert":
            rows, is_new = index.find_or_insert(array)
            fresh = [i for i, value in enumerate(batch) if value not in model]
            for value, row in zip(batch, rows.tolist(), strict=True):
                model.setdefault(value, row)
            assert is_new.sum() == len({batch[i] for i in fresh})
        elif operation == "remove":
            index.remove(array)
            for value in batch:
                model.pop(value, None)
        expected = [model.get(value, -1) for value in batch]
        assert index.find(array).tolist() == expected
        assert len(index) == len(model)
        assert len(set(model.values())) == len(model), "two ids share a row"


def test_many_random_ids_each_get_a_row_of_their_own() -> None:
    index = Index()
    values = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 50_000)
    index.find_or_insert(values)
    assert np.array_equal(np.sort(index.find(values)), np.arange(50_000))


def test_removed_rows_are_used_again() -> None:
    index = Index()
    values = np.arange(5000)
    index.find_or_insert(values)
    index.remove(values[:4000])
    index.find_or_insert(values + 10_000)
    assert index.rows_ever == 6000


def test_its_parts_hold_every_entry_once() -> None:
    index = Index()
    values = np.arange(-3000, 3000)
    index.find_or_insert(values)
    parts = [index.entries(part, part + 1) for part in range(SUBTABLES)]
    found = {i: r for part in parts for i, r in zip(*map(np.ndarray.tolist, part), strict=True)}
    assert found == dict(zip(values.tolist(), index.find(values).tolist(), strict=True))
    np.testing.assert_array_equal(np.sort(index.entries()[0]), values)


def test_a_row_costs_at_most_twenty_bytes_in_the_index_at_every_size() -> None:
    index = Index()
    for start in range(100_000, 400_000, 20_000):
        index.find_or_insert(np.arange(0, start))
        assert index.nbytes / len(index) < 21


def test_parts_do_not_grow_all_at_once() -> None:
    index = Index()
    index.find_or_insert(np.arange(100_000))
    for start in range(100_000, 150_000, 1_000):
        before = index._capacity.copy()
        index.find_or_insert(np.arange(start, start + 1_000))
        assert (index._capacity != before).sum() < SUBTABLES / 8
