"""Which optimizer a table has whose spec names none."""

from typing import Any

import pytest

from flambeau.config import CodeRef, FileData, JobSettings, OptimizerSpec, optim
from flambeau.config.table_optimizer import table_optimizer
from flambeau.config.tables import TableSpec, optimizer_of
from flambeau.tables.optimizers import Adagrad
from flambeau.tables.table import Table


def chosen(**settings: Any) -> OptimizerSpec | None:
    job = JobSettings(model=CodeRef(path="m:Net"), train=FileData(path="x"), **settings)
    return table_optimizer(job)


def test_the_one_for_tables_comes_first() -> None:
    own = optim("ftrl", alpha=0.1)
    assert chosen(optimizer=optim("sgd", lr=0.1), table_optimizer=own) == own


def test_otherwise_it_is_that_of_the_other_weights() -> None:
    assert chosen(optimizer=optim("adagrad", lr=0.1)) == optim("adagrad", lr=0.1)
    assert chosen(optimizer=optim("adam", lr=1e-3)) == optim("adam", lr=1e-3)


@pytest.mark.parametrize(("dim", "rate"), [(1, 0.05), (8, 0.02)])
def test_if_nothing_is_said_it_is_adagrad(dim: int, rate: float) -> None:
    assert chosen() is None
    assert optimizer_of(TableSpec("t", dim), chosen()) == optim("adagrad", lr=rate)
    own = TableSpec("t", dim, optimizer=optim("ftrl"))
    assert optimizer_of(own, optim("sgd")) == optim("ftrl")
    table = Table(TableSpec("t", dim), seed=0)
    assert (type(table.optimizer), table.optimizer.lr) == (Adagrad, rate)


def test_groups_of_parameters_are_of_no_use_to_tables() -> None:
    dense = optim("sgd", lr=0.1, groups={"*.bias": {"lr": 0.2}})
    assert chosen(optimizer=dense) == optim("sgd", lr=0.1)


@pytest.mark.parametrize(
    "dense",
    [
        optim("radam"),
        optim("torch.optim:SGD", lr=0.1),
        CodeRef(path="mine:build"),
        {"gen": optim("sgd"), "disc": optim("sgd")},
    ],
    ids=["not for tables", "a class", "code", "several"],
)
def test_there_is_none_if_tables_cannot_have_that(dense: Any) -> None:
    assert chosen(optimizer=dense) is None
