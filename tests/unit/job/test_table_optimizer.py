"""Which optimizer a table has whose spec names none."""

from typing import Any

import pytest

from flambeau.config import CodeRef, FileData, JobSettings, OptimizerSpec, optim
from flambeau.job.table_optimizer import table_optimizer


def chosen(**settings: Any) -> OptimizerSpec | None:
    job = JobSettings(model=CodeRef(path="m:Net"), train=FileData(path="x"), **settings)
    return table_optimizer(job)


def test_the_one_for_tables_comes_first() -> None:
    own = optim("ftrl", alpha=0.1)
    assert chosen(optimizer=optim("sgd", lr=0.1), table_optimizer=own) == own


def test_otherwise_it_is_that_of_the_other_weights() -> None:
    assert chosen(optimizer=optim("adagrad", lr=0.1)) == optim("adagrad", lr=0.1)
    assert chosen() == OptimizerSpec(name="adam")


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
