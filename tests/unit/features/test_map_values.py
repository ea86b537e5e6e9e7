"""Values are replaced by those of a mapping, as a dict in Python would."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import transformed

from flambeau.errors import ConfigError, DataError
from flambeau.features.operation import Operation
from flambeau.features.operations.values import MapValues

few = settings(max_examples=25)
words = st.sampled_from(["", "a", "b", "é", "日本語", "a\0", "🔥"])
numbers = st.sampled_from([-(2**63), -1, 0, 1, 2, 2**63 - 1])
some = {"max_size": 8, "min_size": 1}


def mapped(value: Any, mapping: dict[Any, Any], default: Any) -> Any:
    """State in Python what the operation does."""
    if value is None:
        return None
    return mapping.get(value, value if default == "keep" else default)


def column(operation: Operation, values: Any, kind: pa.DataType = None) -> pa.ChunkedArray:
    return transformed(operation, {"a": pa.array(values, kind)})["a"]


@few
@given(
    st.lists(st.none() | words | st.text(max_size=3), **some),
    st.dictionaries(words, st.none() | words, min_size=1),
    st.sampled_from(["keep", None, "", "other"]),
    st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]),
)
def test_texts_become_texts(
    values: list[Any], mapping: dict[Any, Any], default: Any, kind: pa.DataType
) -> None:
    if default is None:
        mapping = {**mapping, "a": "A"}
    found = column(MapValues("a", mapping=mapping, default=default), values, kind)
    assert found.to_pylist() == [mapped(value, mapping, default) for value in values]
    if default != "keep":
        assert found.type == pa.string()


@few
@given(
    st.lists(st.none() | numbers, **some),
    st.dictionaries(numbers, st.none() | numbers, min_size=1),
    st.sampled_from(["keep", -(2**63), 7]),
)
def test_integers_become_integers(values: list[Any], mapping: dict[Any, Any], default: Any) -> None:
    found = column(MapValues("a", mapping=mapping, default=default), values, pa.int64())
    assert found.type == pa.int64()
    assert found.to_pylist() == [mapped(value, mapping, default) for value in values]


@few
@given(
    st.lists(st.none() | st.booleans(), **some),
    st.dictionaries(st.booleans(), st.floats(-9, 9) | st.integers(-9, 9), min_size=1),
)
def test_booleans_become_numbers(values: list[Any], mapping: dict[Any, Any]) -> None:
    found = column(MapValues("a", mapping=mapping, default=0.5), values, pa.bool_())
    assert found.type == pa.float64()
    assert found.to_pylist() == [mapped(value, mapping, 0.5) for value in values]


def test_integers_beyond_int64_are_exact() -> None:
    mapping = {2**64 - 1: 2**64 - 2, 3: 2**53 + 1}
    values = [2**64 - 1, 2**64 - 2, 3, None]
    found = column(MapValues("a", mapping=mapping, default=0), values, pa.uint64())
    assert found.type == pa.uint64()
    assert found.to_pylist() == [2**64 - 2, 0, 2**53 + 1, None]


def test_kept_values_keep_their_type() -> None:
    found = column(MapValues("a", mapping={1: 200.0, 300: 5}), [1, 2, None], pa.uint8())
    assert found.type == pa.uint8()
    assert found.to_pylist() == [200, 2, None]


def test_keys_that_a_column_cannot_hold_occur_in_no_row() -> None:
    found = column(MapValues("a", mapping={300: "x"}, default="y"), [1, None], pa.uint8())
    assert found.to_pylist() == ["y", None]


def test_a_dictionary_of_values_is_mapped() -> None:
    values = pa.array(["a", "b", None, "a"]).dictionary_encode()
    found = column(MapValues("a", mapping={"a": 1}, default=None), values)
    assert found.to_pylist() == [1, None, None, 1]


def test_columns_of_nothing_stay_empty() -> None:
    assert column(MapValues("a", mapping={"a": "b"}), [None]).type == pa.null()
    found = column(MapValues("a", mapping={"a": 1}, default=2), [None])
    assert (found.type, found.to_pylist()) == (pa.int64(), [None])


def test_numpy_values_are_values() -> None:
    mapping = {np.int64(1): np.float32(0.5), np.int64(2): np.float64(2)}
    assert column(MapValues("a", mapping=mapping, default=None), [1, 2, 3]).to_pylist() == [
        0.5,
        2.0,
        None,
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "'mapping' is missing"),
        ({"mapping": 3}, "mapping=3: give a dict such as {'old': 'new'}"),
        ({"mapping": {}}, "mapping={}: give at least one value to replace"),
        ({"mapping": {1: 1, "a": 2}}, "keys of several types: int, str; give one type"),
        ({"mapping": [(1, 2), (1, 3)]}, "has a key twice; give each key one value"),
        ({"mapping": {1: 1, 2: "a"}, "default": None}, "int and str values; give values of one"),
        ({"mapping": {1: 2}, "default": True}, "bool and int values; give values of one type"),
        ({"mapping": {1: 0.5}, "default": 2**53 + 1}, "float and int values"),
        ({"mapping": {1: 2**70}, "default": None}, "neither int64 nor uint64 can hold"),
        ({"mapping": {1: None}, "default": None}, "no values but None"),
        ({"mapping": {0.5: 1}}, "Input should be a valid boolean or a valid integer or a valid s"),
        ({"mapping": {1: float("nan")}}, "a finite number"),
    ],
)
def test_wrong_settings_say_what_would_be_right(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        MapValues("a", **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        ({"mapping": {1: 2}}, ["a"], "column 'a' holds string: mapping= has keys such as 1; give"),
        ({"mapping": {1: 2}}, [True], "column 'a' holds bool: mapping= has keys such as 1; give"),
        ({"mapping": {1: 2}}, [0.5], "column 'a' holds double: mapping= has keys such as 1; give"),
        ({"mapping": {1: 2}}, [[1]], "column 'a' holds list<item: int64>: mapping= has keys"),
        ({"mapping": {1: "b"}}, [1], "'b' does not fit int64, which other values keep; give defau"),
        ({"mapping": {1: 2**63}}, [1], "9223372036854775808 does not fit int64"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    settings: dict[str, Any], values: list[Any], message: str
) -> None:
    with pytest.raises(DataError) as error:
        column(MapValues("a", **settings), values)
    assert message in str(error.value)
