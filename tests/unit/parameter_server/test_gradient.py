"""The mean of several gradients, and what is done to one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.parameter_server.gradient import Gradient, weighted_mean
from flambeau.tables.index.unique_ids import Fold

DIM, DENSE = 2, 5


def table(rows: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    """Ids, and gradients that are all the same number in a row."""
    column = np.array(list(rows.values()), np.float64)
    return np.array(list(rows), np.int64), np.tile(column[:, None], (1, DIM))


def as_dict(ids: np.ndarray, grads: np.ndarray) -> dict[int, list[float]]:
    assert len(set(ids.tolist())) == ids.size, "an id came twice"
    return dict(zip(ids.tolist(), grads.tolist(), strict=True))


def stated_mean(members: list[tuple[int, dict[int, float]]]) -> dict[int, list[float]]:
    """Each id's gradients by their weights, over the weights of all; one term at a time."""
    whole = sum(weight for weight, _ in members)
    means: dict[int, float] = {}
    for weight, rows in members:
        for id_, number in rows.items():
            if weight:
                means[id_] = means.get(id_, 0.0) + number * weight / whole
    return {id_: [number] * DIM for id_, number in means.items()}


numbers = st.floats(-100, 100)
members = st.lists(
    st.tuples(st.integers(0, 5), st.dictionaries(st.integers(-3, 6), numbers, max_size=6)),
    min_size=1,
    max_size=4,
).filter(lambda given: any(weight for weight, _ in given))


@given(members)
def test_the_mean_of_tables_is_the_sum_of_shares_for_each_id(given) -> None:
    gradients = [(float(weight), Gradient({3: table(rows)})) for weight, rows in given]
    found = as_dict(*weighted_mean(gradients, Fold()).tables[3])
    expected = stated_mean(given)
    assert found.keys() == expected.keys()
    for id_, row in expected.items():
        np.testing.assert_allclose(found[id_], row, rtol=1e-12, atol=1e-12)


@given(st.lists(st.tuples(st.integers(1, 9), st.lists(numbers, min_size=DENSE, max_size=DENSE))))
def test_the_mean_of_dense_gradients_is_weighted(given) -> None:
    if not given:
        return
    gradients = [(float(weight), Gradient(dense=np.array(row))) for weight, row in given]
    rows, weights = np.array([row for _, row in given]), [weight for weight, _ in given]
    found = weighted_mean(gradients, Fold()).dense
    np.testing.assert_allclose(found, np.average(rows, axis=0, weights=weights), atol=1e-12)


def test_a_gradient_of_weight_0_says_nothing() -> None:
    silent = Gradient({0: table({1: 9.0}), 1: table({1: 9.0})}, np.full(2, np.nan), rates=[7.0])
    heard = Gradient({0: table({1: 2.0})}, np.ones(2), absent=frozenset({4}), rates=[0.5], factor=3)
    mean = weighted_mean([(0.0, silent), (8.0, heard)], Fold())
    assert as_dict(*mean.tables[0]) == {1: [2.0, 2.0]}
    assert list(mean.tables) == [0]
    assert mean.dense is not None
    assert mean.dense.tolist() == [1.0, 1.0]
    assert (mean.absent, mean.rates, mean.factor) == (frozenset({4}), [0.5], 3)


def test_nobody_with_rows_makes_an_empty_gradient() -> None:
    mean = weighted_mean([(0.0, Gradient({0: table({1: 1.0})}, np.ones(2)))], Fold())
    assert (mean.tables, mean.dense) == ({}, None)


def test_a_table_that_was_looked_up_without_ids_stays_in_the_mean() -> None:
    mean = weighted_mean([(1.0, Gradient({2: table({})})), (1.0, Gradient({2: table({})}))], Fold())
    ids, grads = mean.tables[2]
    assert (ids.size, grads.shape) == (0, (0, DIM))


def test_a_table_that_one_member_did_not_look_up_keeps_that_members_share() -> None:
    mean = weighted_mean([(1.0, Gradient({0: table({5: 4.0})})), (3.0, Gradient())], Fold())
    assert as_dict(*mean.tables[0]) == {5: [1.0, 1.0]}


def test_a_weight_is_absent_if_nobody_had_a_gradient_for_it() -> None:
    first, second = Gradient(absent=frozenset({1, 2})), Gradient(absent=frozenset({2, 3}))
    assert weighted_mean([(1.0, first), (1.0, second)], Fold()).absent == {2}


@pytest.mark.parametrize("members", [1, 2])
def test_the_mean_has_memory_of_its_own(members: int) -> None:
    gradient = Gradient({0: table({1: 2.0})}, np.ones(3))
    mean = weighted_mean([(1.0, gradient)] * members, Fold())
    mean.scale(0.0)
    assert gradient.tables[0][1].tolist() == [[2.0, 2.0]]
    assert gradient.dense is not None
    assert gradient.dense.tolist() == [1.0] * 3


def test_float32_gradients_have_a_float32_mean() -> None:
    ids, grads = table({1: 1.0, 2: 3.0})
    gradient = Gradient({0: (ids, grads.astype(np.float32))}, np.ones(2, np.float32))
    mean = weighted_mean([(1.0, gradient), (2.0, gradient)], Fold())
    assert mean.tables[0][1].dtype == np.float32
    assert mean.dense is not None
    assert mean.dense.dtype == np.float32


def test_squares_are_those_of_tables_and_dense_weights_together() -> None:
    gradient = Gradient({0: table({1: 2.0}), 1: table({1: 3.0})}, np.array([1.0, 4.0]))
    assert gradient.squares() == 2 * 4 + 2 * 9 + 1 + 16
    assert Gradient().squares() == 0.0


def test_clamping_limits_every_number() -> None:
    gradient = Gradient({0: table({1: -9.0, 2: 0.5})}, np.array([7.0, -0.25]))
    gradient.clamp(1.0)
    assert as_dict(*gradient.tables[0]) == {1: [-1.0, -1.0], 2: [0.5, 0.5]}
    assert gradient.dense is not None
    assert gradient.dense.tolist() == [1.0, -0.25]


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_scaling_multiplies_every_number(factor: float) -> None:
    gradient = Gradient({0: table({1: 4.0})}, np.array([2.0]))
    gradient.scale(factor)
    assert as_dict(*gradient.tables[0]) == {1: [4.0 * factor] * DIM}
    assert gradient.dense is not None
    assert gradient.dense.tolist() == [2.0 * factor]
