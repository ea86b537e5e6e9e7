"""LR and FM for rows with any number of ids, as in libsvm files."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.config import optim
from flambeau.data import jagged
from flambeau.data.jagged import from_lists
from flambeau.embeddings import train_in_process
from flambeau.embeddings.attach import tables_of
from flambeau.models import FM, LR

BAGS = [[3, 5, 1], [], [2], [5, 5]]
VALUES = [[0.5, -2.0, 1.0], [], [3.0], [1.0, 2.0]]


def known(kind: type[Any], dense: int = 0, **args: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A model, and the rows 0 to 5 of its tables."""
    chance = np.random.default_rng(1)
    model = kind(fields=None, dense=dense, table={"dtype": "fp64"}, **args).double()
    training = train_in_process(model, optim("sgd", lr=0.1))
    rows = {}
    for spec in tables_of(model):
        rows[spec.name] = chance.normal(size=(6, spec.dim))
        training.tables.load(spec, np.arange(6), rows[spec.name])
    model.linear.bias.data.fill_(0.25)
    return model, rows


def doubles(bags: list[list[int]], values: list[list[float]]) -> jagged.Jagged:
    found = from_lists(bags, values)
    assert found.values is not None
    return jagged.Jagged(found.ids, found.offsets, found.values.double())


def lr_logit(rows: dict[str, np.ndarray], ids: list[int], values: list[float]) -> float:
    return 0.25 + sum(v * rows["linear"][id, 0] for id, v in zip(ids, values, strict=True))


def fm_logit(rows: dict[str, np.ndarray], ids: list[int], values: list[float]) -> float:
    vectors = [v * rows["embeddings"][id] for id, v in zip(ids, values, strict=True)]
    pairs = sum(float(a @ b) for a, b in combinations(vectors, 2))
    return lr_logit(rows, ids, values) + pairs


def test_logistic_regression_sums_over_the_ids_of_a_row() -> None:
    model, rows = known(LR)
    expected = [lr_logit(rows, *pair) for pair in zip(BAGS, VALUES, strict=True)]
    np.testing.assert_allclose(model(doubles(BAGS, VALUES)).detach(), expected)


def test_a_factorization_machine_lets_all_ids_of_a_row_meet() -> None:
    model, rows = known(FM, embedding_dim=3)
    expected = [fm_logit(rows, *pair) for pair in zip(BAGS, VALUES, strict=True)]
    np.testing.assert_allclose(model(doubles(BAGS, VALUES)).detach(), expected)


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=4))
def test_without_values_each_id_counts_once(bags: list[list[int]]) -> None:
    model, rows = known(FM, embedding_dim=2)
    expected = [fm_logit(rows, ids, [1.0] * len(ids)) for ids in bags]
    np.testing.assert_allclose(model(from_lists(bags)).detach(), expected, atol=1e-12)


@pytest.mark.parametrize("kind", [LR, FM])
def test_columns_beside_each_other_are_one_bag(kind: type[Any]) -> None:
    model, _ = known(kind)
    ids = torch.tensor([[1, 2], [3, 3]])
    expected = model(from_lists(ids.tolist())).detach()
    for same in (ids, jagged.stack([ids])):
        torch.testing.assert_close(model(same).detach(), expected)


@pytest.mark.parametrize("kind", [LR, FM])
def test_numbers_go_in_as_with_fields(kind: type[Any]) -> None:
    model, _ = known(kind, dense=2)
    model.linear.weight.data = torch.tensor([2.0, -1.0]).double()
    numbers = torch.tensor([[0.0, 0.0], [1.0, 3.0]]).double()
    found = model(from_lists([[1], [1]]), numbers).detach()
    assert found[1] - found[0] == pytest.approx(-1.0)


def test_gradients_reach_the_rows_of_a_factorization_machine() -> None:
    model, rows = known(FM, embedding_dim=3)
    model(doubles([[3, 5]], [[0.5, -2.0]])).sum().backward()
    lookups = model.embeddings.rows.lookups
    gradients = {each.spec.name: each for each in lookups.gradients()}
    found = dict(zip(*(getattr(gradients["embeddings"], n) for n in ("ids", "grads")), strict=True))
    np.testing.assert_allclose(found[3], 0.5 * -2.0 * rows["embeddings"][5])
    np.testing.assert_allclose(found[5], 0.5 * -2.0 * rows["embeddings"][3])
