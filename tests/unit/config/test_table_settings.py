"""Tables: what can be said of one, and what is said when it is wrong."""

from typing import Any

import pytest

from flambeau.config import TableSpec, optim
from flambeau.config.tables import Capacity, Initializer, MinCount, Probability, TimeToLive
from flambeau.errors import ConfigError


def complaint(make: Any, *values: Any, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(*values, **settings)
    return str(caught.value)


def table(**settings: Any) -> TableSpec:
    return TableSpec(**{"name": "user", "dim": 4, **settings})


LETTERS = "a table's name has letters, digits, '_', '-' and '.' only"
AT_LEAST = "Input should be greater than or equal to"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 0}, f"dim=0: {AT_LEAST} 1"),
        ({"name": "a b"}, f"name='a b': {LETTERS}"),
        ({"name": "../a"}, f"name='../a': {LETTERS}"),
        ({"dtyp": "fp16"}, "unknown key 'dtyp'; did you mean 'dtype'?"),
        (
            {"dtype": "fp8"},
            "dtype='fp8': Input should be 'fp32', 'fp64', 'bf16' or 'fp16'",
        ),
        ({"storage": "disk"}, "storage='disk': Input should be 'memory' or 'mmap'"),
        (
            {"optimizer": optim("sgd"), "trainable": False},
            "a table with trainable=False has no use for an optimizer",
        ),
        ({"admission": 3}, "admission=3: give MinCount(...) or Probability(...)"),
        (
            {"admission": Capacity(3)},
            "admission=Capacity(kind='capacity', rows=3, policy='lru'): give MinCount(...) or "
            "Probability(...)",
        ),
        (
            {"eviction": {"kind": "capcity", "rows": 3}},
            "eviction={'kind': 'capcity', 'rows': 3}: unknown kind; did you mean 'capacity'?",
        ),
        (
            {"admission": {"kind": "first"}},
            "admission={'kind': 'first'}: unknown kind; known: min_count, probability",
        ),
        ({"eviction": {}}, "eviction={}: give TimeToLive(...) or Capacity(...)"),
        (
            {"eviction": MinCount(3)},
            "eviction=MinCount(kind='min_count', count=3, cells=16777216): give TimeToLive(...) or "
            "Capacity(...)",
        ),
    ],
)
def test_a_wrong_table_is_explained(settings: Any, message: str) -> None:
    name = settings.get("name", "user")
    assert complaint(table, **settings) == f"TableSpec('{name}'): {message}"


def test_a_life_needs_a_unit() -> None:
    assert "TimeToLive(5): of what?" in complaint(TimeToLive, 5)


@pytest.mark.parametrize("name", ["radam", "torch.optim:SGD"])
def test_an_optimizer_that_is_not_for_tables_is_refused(name: str) -> None:
    assert f": '{name}' is not an optimizer for tables; " in complaint(table, optimizer=optim(name))


def test_a_tables_optimizer_has_no_groups() -> None:
    spec = optim("adagrad", groups={"*": {"lr": 0.1}})
    said = complaint(table, optimizer=spec)
    assert said.endswith("groups are for parameters by name; give tables optimizers of their own")


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        (MinCount, (0,), f"count=0: {AT_LEAST} 1"),
        (MinCount, (256,), "count=256: Input should be less than or equal to 255"),
        (Probability, (0.0,), "p=0.0: Input should be greater than 0"),
        (Probability, (1.5,), "p=1.5: Input should be less than or equal to 1"),
        (Capacity, (0,), f"rows=0: {AT_LEAST} 1"),
    ],
)
def test_a_rule_has_bounds(make: Any, values: Any, message: str) -> None:
    assert complaint(make, *values) == message


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (MinCount, {"count": 2, "cells": 9}, f"cells=9: {AT_LEAST} 1024"),
        (
            Capacity,
            {"rows": 2, "policy": "lfr"},
            "policy='lfr': Input should be 'lru' or 'lfu'; did you mean 'lru'?",
        ),
        (TimeToLive, {"steps": 0}, f"steps=0: {AT_LEAST} 1"),
        (TimeToLive, {"seconds": 0}, "seconds=0: Input should be greater than 0"),
        (TimeToLive, {"days": -1}, "days=-1: Input should be greater than 0"),
        (TimeToLive, {}, "give one of steps, seconds and days"),
        (TimeToLive, {"steps": 1, "days": 1}, "give one of steps, seconds and days"),
        (
            Initializer,
            {"kind": "norm"},
            "kind='norm': Input should be 'uniform', 'normal' or 'constant'; "
            "did you mean 'normal'?",
        ),
        (Initializer, {"scale": -1}, f"scale=-1: {AT_LEAST} 0"),
    ],
)
def test_a_wrong_part_is_explained(make: Any, settings: Any, message: str) -> None:
    assert complaint(make, **settings) == message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": optim("ftrl", alpha=0.1), "dtype": "bf16", "storage": "mmap"},
        {"admission": MinCount(3), "eviction": TimeToLive(days=2)},
        {"admission": Probability(0.5), "eviction": Capacity(100, policy="lfu")},
        {"trainable": False, "init": "rows.parquet"},
        {"initializer": Initializer(kind="normal", scale=0.1)},
    ],
)
def test_a_table_comes_back_from_plain_values(settings: Any) -> None:
    spec = table(**settings)
    assert TableSpec.parse(spec.model_dump(mode="json")) == spec
