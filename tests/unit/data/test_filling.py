"""Missing numbers among the inputs."""

import math
from typing import Any

import pyarrow as pa
import pytest
import torch

from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.errors import ConfigError, DataError
from flambeau.inference.shorthands import expand

ROWS = pa.record_batch(
    {
        "price": [1.5, None, math.nan],
        "visits": pa.array([3, None, 5], pa.int64()),
        "item": pa.array([7, None, 9], pa.int64()),
        "label": pa.array([None, 1.0, 0.0]),
    }
)
INPUTS = {"x": ["price", "visits"], "ids": "item"}


def forward(x: Any, ids: Any) -> None: ...


def bound(fill: Any, records: pa.RecordBatch = ROWS, inputs: Any = None) -> dict[str, Any]:
    settings = Binding(inputs=inputs or INPUTS, label="label", fill=fill)
    binder = Binder(settings, forward, Shape(tuple(records.schema.names)), expand=expand)
    ready = binder.read(records)
    return {**binder.arguments(ready)[1], "label": binder.label(ready)}


def test_one_number_is_for_all_numbers() -> None:
    assert bound(0.0)["x"].tolist() == [[1.5, 3.0], [0.0, 0.0], [0.0, 5.0]]


def test_ids_are_no_numbers() -> None:
    assert bound(0.0)["ids"].lengths.tolist() == [1, 0, 1]


def test_neither_are_labels() -> None:
    assert bound(0.0)["label"].isnan().tolist() == [True, False, False]


def test_columns_may_have_their_own() -> None:
    found = bound({"price": -1.0, "visits": 2})
    assert found["x"].tolist() == [[1.5, 3.0], [-1.0, 2.0], [-1.0, 5.0]]


def test_integers_that_are_named_are_numbers_in_every_batch() -> None:
    inputs = {"x": "visits", "ids": "item"}
    for records in (ROWS, ROWS.slice(2)):
        assert bound({"visits": 0.0}, records, inputs)["x"].dtype is torch.float32


def test_infinity_is_not_missing() -> None:
    binder = Binder(
        Binding(inputs={"x": "a", "ids": "b"}, fill=0.0), forward, Shape(("a", "b")), expand=expand
    )
    rows = {"a": torch.tensor([math.inf, math.nan]), "b": torch.tensor([1, 2])}
    assert binder.assemble(Batch(rows, 2))["a"].tolist() == [math.inf, 0.0]


def test_a_range_of_columns_has_one_number() -> None:
    assert Binding(fill={"I1:I3": 0}).fill == {"I1": 0.0, "I2": 0.0, "I3": 0.0}


def test_a_whole_batch_is_filled_but_for_its_label() -> None:
    def forward(batch: Batch) -> None: ...

    binder = Binder(
        Binding(label="label", fill=0.0), forward, Shape(tuple(ROWS.schema.names)), expand=expand
    )
    batch = binder.read(ROWS.drop_columns(["visits", "item"]))
    assert batch["price"].tolist() == [1.5, 0.0, 0.0]
    assert batch["label"].isnan().any()


def test_an_unknown_column_comes_with_the_nearest() -> None:
    with pytest.raises(DataError, match="fill: there is no input 'prise'; did you mean 'price'"):
        bound({"prise": 0.0})


def test_what_stands_for_missing_numbers_is_a_number() -> None:
    with pytest.raises(ConfigError, match=r"fill.*finite number"):
        Binding(fill={"price": math.nan})


def test_without_it_integers_that_are_missing_beside_numbers_are_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match=r"'visits' has missing .* fill=\{'visits': 0.0\}"):
        bound(None)
