"""What a step looks up, and its gradients."""

import numpy as np
import pytest
import torch
from matrix_tables import SPEC, MatrixTables, matrix
from torch import Tensor

from flambeau.config.tables import TableSpec
from flambeau.embeddings.lookups import Lookups

WEIGHT = matrix()


@pytest.fixture
def lookups() -> Lookups:
    return Lookups(MatrixTables(WEIGHT.copy()))


def look_up(lookups: Lookups, ids: list[int]) -> Tensor:
    """The row of each id."""
    rows, inverse = lookups.rows(SPEC, torch.tensor(ids, dtype=torch.int64), True)
    return rows[inverse]


def pulled(lookups: Lookups) -> list[list[int]]:
    return [ids for ids, _ in lookups.backend.pulled]  # type: ignore[attr-defined]


def test_each_id_is_pulled_once(lookups: Lookups) -> None:
    rows, inverse = lookups.rows(SPEC, torch.tensor([5, 2, 5, 5]), True)
    assert pulled(lookups) == [[5, 2]]
    assert rows.tolist() == WEIGHT[[5, 2]].tolist()
    assert inverse.tolist() == [0, 1, 0, 0]
    assert inverse.dtype is torch.int32
    assert (lookups.ids_seen, lookups.ids_distinct) == (4, 2)


def test_rows_are_a_leaf_only_for_training_of_a_table_that_learns(lookups: Lookups) -> None:
    ids = torch.tensor([1])
    frozen = TableSpec("frozen", 3, dtype="fp64", trainable=False)
    assert lookups.rows(SPEC, ids, True)[0].requires_grad
    assert not lookups.rows(SPEC, ids, False)[0].requires_grad
    assert not lookups.rows(frozen, ids, True)[0].requires_grad
    with torch.no_grad():
        assert not lookups.rows(SPEC, ids, True)[0].requires_grad


def test_an_unknown_id_of_a_frozen_table_reads_as_in_prediction(lookups: Lookups) -> None:
    frozen = TableSpec("frozen", 3, dtype="fp64", trainable=False)
    lookups.rows(frozen, torch.tensor([1]), True)
    assert lookups.backend.pulled == [([1], False)]  # type: ignore[attr-defined]


def test_gradients_of_several_look_ups_of_a_table_add_up(lookups: Lookups) -> None:
    look_up(lookups, [1, 2, 1]).sum().backward()
    (2 * look_up(lookups, [2, 3])).sum().backward()
    (gradient,) = lookups.gradients()
    assert gradient.spec == SPEC
    assert gradient.ids.tolist() == [1, 2, 3]
    assert gradient.grads.tolist() == [[2.0] * 3, [3.0] * 3, [2.0] * 3]


def test_gradients_are_given_once(lookups: Lookups) -> None:
    look_up(lookups, [1]).sum().backward()
    lookups.gradients()
    assert lookups.gradients() == []


def test_discarded_look_ups_have_no_gradients(lookups: Lookups) -> None:
    look_up(lookups, [1]).sum().backward()
    lookups.discard()
    look_up(lookups, [2]).sum().backward()
    assert lookups.gradients()[0].ids.tolist() == [2]


def test_a_table_that_was_looked_up_in_vain_has_an_empty_gradient(lookups: Lookups) -> None:
    look_up(lookups, [1, 2])
    (gradient,) = lookups.gradients()
    assert (gradient.ids.shape, gradient.grads.shape) == ((0,), (0, 3))


def test_a_look_up_of_nothing_has_an_empty_gradient(lookups: Lookups) -> None:
    look_up(lookups, []).sum().backward()
    (gradient,) = lookups.gradients()
    assert (gradient.ids.shape, gradient.grads.shape) == ((0,), (0, 3))


def test_tables_have_gradients_of_their_own(lookups: Lookups) -> None:
    other = TableSpec("u", 3, dtype="fp64")
    (look_up(lookups, [1]) + lookups.rows(other, torch.tensor([1]), True)[0]).sum().backward()
    assert [gradient.spec.name for gradient in lookups.gradients()] == ["t", "u"]


def test_an_id_keeps_its_values_until_the_step_ends(lookups: Lookups) -> None:
    first = look_up(lookups, [1, 2]).tolist()
    lookups.backend.weight += 1.0  # type: ignore[attr-defined]
    assert look_up(lookups, [2, 1, 4]).tolist() == [first[1], first[0], (WEIGHT[4] + 1).tolist()]
    assert pulled(lookups) == [[1, 2], [4]]
    lookups.gradients()
    assert look_up(lookups, [1]).tolist() == [(WEIGHT[1] + 1).tolist()]


def test_primed_rows_are_not_pulled(lookups: Lookups) -> None:
    rows = np.ones((2, 3))
    lookups.prime(SPEC, np.array([4, 6]), rows)
    assert look_up(lookups, [4, 6, 4]).tolist() == [[1.0] * 3] * 3
    assert pulled(lookups) == []
    assert (lookups.hits, lookups.misses) == (2, 0)


def test_primed_rows_in_the_order_of_the_look_up_are_not_copied(lookups: Lookups) -> None:
    rows = np.ones((2, 3))
    lookups.prime(SPEC, np.array([4, 6]), rows)
    found, _ = lookups.rows(SPEC, torch.tensor([4, 4, 6]), True)
    assert found.data_ptr() == rows.ctypes.data


def test_only_what_was_not_primed_is_pulled(lookups: Lookups) -> None:
    lookups.prime(
        SPEC, np.array([4, 6, 7]), np.stack([np.full(3, 4.0), np.full(3, 6.0), np.ones(3)])
    )
    found = look_up(lookups, [6, 1, 4, 2])
    assert found.tolist() == [[6.0] * 3, WEIGHT[1].tolist(), [4.0] * 3, WEIGHT[2].tolist()]
    assert pulled(lookups) == [[1, 2]]
    assert (lookups.hits, lookups.misses) == (2, 2)
    found.sum().backward()
    assert lookups.gradients()[0].ids.tolist() == [6, 1, 4, 2]


def test_a_table_can_be_primed_for_several_columns(lookups: Lookups) -> None:
    lookups.prime(SPEC, np.array([4]), np.full((1, 3), 4.0))
    lookups.prime(SPEC, np.array([5, 4]), np.full((2, 3), 5.0))
    assert look_up(lookups, [5, 4])[:, 0].tolist() == [5.0, 4.0]
    assert pulled(lookups) == []


def test_primed_rows_may_be_read_only(lookups: Lookups) -> None:
    rows = np.ones((1, 3))
    rows.flags.writeable = False
    lookups.prime(SPEC, np.array([4]), rows)
    assert look_up(lookups, [4]).tolist() == [[1.0] * 3]


def test_primed_rows_that_nobody_wants_have_no_gradient(lookups: Lookups) -> None:
    lookups.prime(SPEC, np.array([4]), np.ones((1, 3)))
    assert lookups.gradients() == []


def test_evaluation_reads_neither_primed_rows_nor_those_of_the_step(lookups: Lookups) -> None:
    lookups.prime(SPEC, np.array([4]), np.ones((1, 3)))
    rows, _ = lookups.rows(SPEC, torch.tensor([4]), False)
    assert rows.tolist() == WEIGHT[[4]].tolist()
    assert lookups.ids_seen == 0
