"""Columns become columns of other types, or an error names the value that has none."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import transformed

from flambeau.errors import DataError
from flambeau.features.operations.cast import Cast

NAN, INF = math.nan, math.inf
few = settings(max_examples=25)
integer_types = st.sampled_from(["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
whole = st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 2**24 + 1, 255, 128, -1, 0, 1])
floats = st.none() | st.floats() | st.sampled_from([NAN, INF, -0.0, 2.0**63, 2.0**64, -1.0, 255.0])


def result(to: str, values: Any, kind: pa.DataType = None) -> list[Any]:
    values = values if isinstance(values, pa.Array) else pa.array(values, kind)
    found: list[Any] = transformed(Cast("a", to=to), {"a": values})["a"].to_pylist()
    return found


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=6)


def expect(to: str, values: list[Any], kind: pa.DataType, expected: list[Any]) -> None:
    """Expect results; ValueError stands for what cannot be cast, of which the first is named."""
    wrong = [value for value, each in zip(values, expected, strict=True) if each is ValueError]
    if not wrong:
        assert repr(result(to, values, kind)) == repr(expected)
        return
    with pytest.raises(DataError) as error:
        result(to, values, kind)
    message = f"cast: column 'a' has the value {wrong[0]!r}, which cannot be cast to {to}"
    assert str(error.value) == message


def as_integer(value: Any, to: str) -> Any:
    """State in Python what the integer of a number is."""
    if value is None or value != value:
        return None
    limits = np.iinfo(to)
    if abs(value) == INF or value != int(value) or not limits.min <= value <= limits.max:
        return ValueError
    return int(value)


@few
@given(some(floats), integer_types)
def test_floats_become_integers_if_they_are(values: list[Any], to: str) -> None:
    expect(to, values, pa.float64(), [as_integer(value, to) for value in values])


@few
@given(some(st.none() | whole), integer_types)
def test_integers_become_those_of_other_types(values: list[Any], to: str) -> None:
    expect(to, values, pa.int64(), [as_integer(value, to) for value in values])


@few
@given(some(st.none() | whole), integer_types)
def test_texts_are_read_as_integers(values: list[Any], to: str) -> None:
    texts = [None if value is None else str(value) for value in values]
    expect(to, texts, pa.string(), [as_integer(value, to) for value in values])


@few
@given(some(whole), st.sampled_from(["float32", "float64"]))
def test_integers_become_the_nearest_floats(values: list[Any], to: str) -> None:
    expected = np.array(values, np.int64).astype(to).tolist()
    expect(to, [*values, None], pa.int64(), [*expected, None])


@few
@given(some(floats))
def test_large_floats_do_not_become_infinite(values: list[Any]) -> None:
    with np.errstate(over="ignore"):
        near = [None if value is None else np.float32(value).item() for value in values]
    pairs = zip(values, near, strict=True)
    expected = [
        ValueError if value is not None and math.isinf(each) and not math.isinf(value) else each
        for value, each in pairs
    ]
    expect("float32", values, pa.float64(), expected)


@few
@given(some(floats))
def test_texts_of_floats_are_read_as_the_same_floats(values: list[Any]) -> None:
    texts = result("text", values, pa.float64())
    expected = [None if value is None or value != value else value for value in values]
    assert repr(result("float64", texts, pa.string())) == repr(expected)


@pytest.mark.parametrize(
    ("values", "kind", "to", "expected"),
    [
        ([True, False, None], None, "int8", [1, 0, None]),
        ([True, False, None], None, "float32", [1.0, 0.0, None]),
        ([True, False, None], None, "text", ["true", "false", None]),
        ([0, 2, None], None, "bool", [False, True, None]),
        ([0.0, 0.5, NAN], None, "bool", [False, True, None]),
        (["true", "False", "1", "0", None], None, "bool", [True, False, True, False, None]),
        ([1.5, -2.0], pa.float16(), "float64", [1.5, -2.0]),
        ([1.0, NAN], pa.float16(), "int64", [1, None]),
        ([1.5, None], None, "float16", [1.5, None]),
        (["é", None], pa.large_string(), "text", ["é", None]),
        (["é", None], pa.string_view(), "text", ["é", None]),
        ([b"\xc3\xa9"], None, "text", ["é"]),
        ([2**64 - 1], pa.uint64(), "text", ["18446744073709551615"]),
        ([Decimal("1.50"), None], None, "float64", [1.5, None]),
        ([datetime.date(1970, 1, 3), None], None, "int64", [2, None]),
        ([5, None], pa.timestamp("ms"), "int64", [5, None]),
        ([5, None], pa.duration("s"), "float32", [5.0, None]),
        ([None, None], pa.null(), "int16", [None, None]),
        (pa.array(["1", None, "1"]).dictionary_encode(), None, "int64", [1, None, 1]),
    ],
)
def test_other_types(values: Any, kind: pa.DataType, to: str, expected: list[Any]) -> None:
    if kind == pa.float16():
        values = pa.array(np.array(values, np.float16))
    assert result(to, values, kind) == expected


@pytest.mark.parametrize(
    ("values", "kind", "to", "example"),
    [
        (["1", "", "x"], None, "int64", "''"),
        (["1", "1.5"], None, "int32", "'1.5'"),
        (["yes"], None, "bool", "'yes'"),
        ([1, 70000], None, "float16", "70000"),
        ([b"a", b"\xff"], None, "text", "b'\\xff'"),
        ([2**64 - 1], pa.uint64(), "int64", "18446744073709551615"),
    ],
)
def test_a_value_that_has_no_such_type_is_named(
    values: Any, kind: pa.DataType, to: str, example: str
) -> None:
    with pytest.raises(DataError) as error:
        result(to, values, kind)
    assert f"column 'a' has the value {example}, which cannot be cast to {to}" in str(error.value)


@pytest.mark.parametrize("values", [[[1]], [{"x": 1}]])
def test_lists_and_structs_are_not_cast(values: Any) -> None:
    with pytest.raises(DataError, match=r"cast: column 'a' holds .* it cannot be cast to text"):
        result("text", values)
