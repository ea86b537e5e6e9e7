"""Columns of few rows that are converted together."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.inference import given_rows
from flambeau.inference.few_rows import few_rows_together
from flambeau.inference.given_rows import as_records

KINDS = {"a": "floats", "b": "floats", "c": "integers", "d": "texts", "e": "texts", "f": "integers"}
numbers = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)
integers = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.none() | st.text(max_size=5)
ROW = st.fixed_dictionaries(
    {"a": numbers, "b": numbers, "c": integers, "d": texts, "e": texts, "f": integers}
)


@settings(max_examples=60)
@given(ROW)
def test_one_row_is_what_it_is_column_by_column(row: dict[str, Any]) -> None:
    together = as_records([row], KINDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(given_rows, "few_rows_together", lambda columns, types: {})
        assert together.equals(as_records([row], KINDS))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "floats"),
        (1 << 63, "floats"),
        (1 << 63, "integers"),
        (1.5, "integers"),
        ("1", "floats"),
        (b"x", "texts"),
        ([1.0], "floats"),
        (1, "lists of floats"),
    ],
)
def test_other_values_are_converted_one_by_one(value: Any, kind: str) -> None:
    assert few_rows_together({"a": [value], "b": [None]}, {"a": kind, "b": "floats"}).keys() == {
        "b"
    }


def test_columns_of_different_lengths_are_left_to_be_refused() -> None:
    assert few_rows_together({"a": [1.0], "b": [1.0, 2.0]}, {"a": "floats", "b": "floats"}) == {}
    found = few_rows_together({"a": [1, None]}, {"a": "floats"})
    assert found["a"].equals(pa.array([1.0, None]))
