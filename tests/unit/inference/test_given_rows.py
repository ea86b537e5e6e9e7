from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from flambeau.errors import DataError
from flambeau.inference.given_rows import as_records

ROWS = {"x": [1.5, 2.5], "ids": [3, 4]}


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        pa.table(ROWS),
        pa.record_batch(ROWS),
        [{"x": 1.5, "ids": 3}, {"x": 2.5, "ids": 4}],
        {"x": np.array([1.5, 2.5]), "ids": torch.tensor([3, 4])},
    ],
    ids=["lists", "table", "records", "dicts", "arrays"],
)
def test_any_form_of_rows_gives_the_same(data: Any) -> None:
    assert as_records(data, {}).to_pydict() == ROWS


def test_arrays_of_several_dimensions_become_lists() -> None:
    values = np.arange(12).reshape(2, 2, 3)
    assert as_records({"x": values}, {}).to_pydict()["x"] == values.tolist()


def test_whole_numbers_stand_for_floats_also_in_lists() -> None:
    found = as_records({"x": [1, 2], "y": [[1], [2]]}, {"x": "floats", "y": "floats"})
    assert pa.types.is_floating(found["x"].type)
    assert pa.types.is_floating(found["y"].type.value_type)


def test_floats_without_fractions_stand_for_ids() -> None:
    assert as_records({"i": [1.0, 2.0]}, {"i": "integers"}).to_pydict() == {"i": [1, 2]}
    with pytest.raises(DataError, match="numbers with fractions"):
        as_records({"i": [1.5]}, {"i": "integers"})


def test_a_missing_column_in_one_row_is_a_missing_value() -> None:
    assert as_records([{"a": 1, "b": 2}, {"a": 3}], {})["b"].null_count == 1


@pytest.mark.parametrize(
    ("data", "trained", "message"),
    [
        ({"x": ["a"]}, "floats", "holds texts, but the model was trained with floats"),
        ({"x": [1]}, "texts", "holds integers, but the model was trained with texts"),
        ({"x": ["a"]}, "integers", "holds texts"),
        ({"x": [1], "y": [1, 2]}, "integers", "different numbers of rows"),
        ({"x": []}, "integers", "no rows to predict"),
        ([], "integers", "no rows to predict; give at least one; the model knows the columns 'x'"),
        ([{}], "integers", "rows to predict have no columns; the model knows the columns 'x'"),
        ({}, "integers", "rows to predict have no columns"),
        ({"x": [1, "a"]}, "integers", "column 'x'"),
        ("text", "integers", "cannot predict for a str"),
    ],
)
def test_what_the_model_does_not_know_is_refused(data: Any, trained: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_records(data, {"x": trained})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63, 5], pa.uint64()),
        ([2**64 - 1, None], pa.uint64()),
        (np.array([2**63, 5], np.uint64), pa.uint64()),
        ([[2**63], [5, 6]], pa.list_(pa.uint64())),
    ],
)
def test_integers_beyond_int64_are_unsigned(values: Any, kind: pa.DataType) -> None:
    column = as_records({"user": values}, {"user": "integers"}).column("user")
    assert column.type == kind


@pytest.mark.parametrize("values", [[2**64], [2**63, -1]])
def test_integers_of_no_type_are_an_error_that_names_the_column(values: list[int]) -> None:
    with pytest.raises(DataError, match=r"'user' holds integers .* give texts"):
        as_records({"user": values}, {"user": "integers"})
