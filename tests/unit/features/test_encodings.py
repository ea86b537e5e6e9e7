"""One-hot lists and counts, against plain Python."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import saved_and_loaded, transformed

from flambeau.errors import ConfigError, DataError
from flambeau.features.operations.columns import Rename
from flambeau.features.operations.encodings import CountEncode, OneHot
from flambeau.features.pipeline import Pipeline

texts = st.none() | st.sampled_from(["", "a", "b", "é", "ab"])
integers = st.none() | st.sampled_from([0, 1, -1, -(1 << 63), (1 << 63) - 1])
columns = st.lists(texts, min_size=1, max_size=8).map(lambda rows: pa.array(rows, pa.string()))
columns |= st.lists(integers, min_size=1, max_size=8).map(lambda rows: pa.array(rows, pa.int64()))


def vocabulary(values: list[Any]) -> list[Any]:
    """Return values from the most frequent on; equally frequent ones in their own order."""
    counts = Counter(value for value in values if value is not None)

    def order(value: Any) -> Any:
        return -counts[value], value.encode() if isinstance(value, str) else value

    return sorted(counts, key=order)


@given(columns, columns)
@settings(max_examples=12)
def test_a_value_is_a_one_at_its_place(train: pa.Array, rows: pa.Array) -> None:
    values = vocabulary(train.to_pylist())
    rows = rows if rows.type == train.type else train
    table, new = pa.table({"a": train}), pa.table({"a": rows})
    if not values:
        with pytest.raises(DataError, match="no value that occurs 1 times or more"):
            Pipeline([OneHot("a")]).fit(table).transform(new)
        return
    found = transformed(OneHot("a"), table, new)
    assert found.schema.field("a").type == pa.list_(pa.float32(), len(values))
    assert found["a"].to_pylist() == [[float(v == row) for v in values] for row in rows.to_pylist()]


def test_rare_and_excess_values_are_all_zeros() -> None:
    table = pa.table({"a": ["x", "x", "x", "y", "y", "z"]})
    found = transformed(OneHot("a", min_count=2), table)
    assert found["a"].to_pylist() == [[1, 0]] * 3 + [[0, 1]] * 2 + [[0, 0]]
    assert transformed(OneHot("a", max_size=1), table)["a"].to_pylist() == [[1]] * 3 + [[0]] * 3


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_items_of_lists_are_all_hot(kind: pa.DataType) -> None:
    rows = [["a", "b", "a"], [], None, [None, "b"], ["a"]]
    found = transformed(OneHot("a"), pa.table({"a": pa.array(rows, kind)}))
    assert found["a"].to_pylist() == [[1, 1], [0, 0], [0, 0], [0, 1], [1, 0]]


def test_missing_lists_of_fixed_length_are_all_zeros() -> None:
    rows = pa.array([[1, 2], None, [2, 2]], pa.list_(pa.int64(), 2))
    found = transformed(OneHot("a"), pa.table({"a": rows}))
    assert found["a"].to_pylist() == [[1, 1], [0, 0], [1, 0]]


def test_operations_after_it_see_its_length() -> None:
    pipeline = Pipeline([OneHot("a", out="hot"), CountEncode("hot", out="counts")])
    rows = {"a": ["x", "y", "x"]}
    found = pipeline.fit(rows).transform(rows)
    assert found.schema.field("counts").type == pa.list_(pa.float32(), 2)
    assert found["counts"].to_pylist() == [[3, 3], [3, 3], [3, 3]]
    assert saved_and_loaded(pipeline).transform(rows).equals(found)


@given(columns, columns, st.sampled_from(["count", "frequency"]))
@settings(max_examples=12)
def test_a_value_is_how_often_it_occurs(train: pa.Array, rows: pa.Array, how: Any) -> None:
    rows = rows if rows.type == train.type else train
    counts = Counter(value for value in train.to_pylist() if value is not None)
    total = max(1, counts.total()) if how == "frequency" else 1
    found = transformed(CountEncode("a", how=how), pa.table({"a": train}), pa.table({"a": rows}))
    expected = [float(np.float32(counts[value] / total)) for value in rows.to_pylist()]
    assert found.schema.field("a").type == pa.float32()
    assert found["a"].to_pylist() == expected


def test_items_of_lists_are_counted_in_their_lists() -> None:
    rows = [["a", "b"], [], None, [None, "a"]]
    found = transformed(CountEncode("a", out="n"), {"a": pa.array(rows, pa.list_(pa.string()))})
    assert found["n"].to_pylist() == [[2, 1], [], None, [0, 2]]


@pytest.mark.parametrize("kind", [pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")])
def test_any_value_that_can_be_compared_is_counted(kind: pa.DataType) -> None:
    numbers = pa.array([0, 1, 1, None], pa.int64() if kind.bit_width == 64 else pa.int32())
    found = transformed(CountEncode("a"), pa.table({"a": numbers.cast(kind)}))
    assert found["a"].to_pylist() == [1, 2, 2, 0]


def test_rows_whose_type_is_unknown_are_missing() -> None:
    rows = pa.table({"a": pa.nulls(1)})
    assert transformed(OneHot("a"), {"a": ["x"]}, rows)["a"].to_pylist() == [[0]]
    assert transformed(CountEncode("a"), {"a": ["x"]}, rows)["a"].to_pylist() == [0]


def test_operations_wait_for_what_they_read_while_others_are_fitted() -> None:
    counts = [CountEncode("a", out="n"), CountEncode("n", out="m")]
    steps = [*counts, Rename({"m": "o"}), OneHot("b")]
    rows = {"a": ["x", "x", "y"], "b": ["p", "q", "p"]}
    found = Pipeline(steps).fit(rows).transform(rows)
    assert found["o"].to_pylist() == [2, 2, 1]
    assert found["b"].to_pylist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneHot("a", max_size=0), "max_size=0: Input should be greater than or equal to 1"),
        (lambda: OneHot("a", min_count=0), "min_count=0: Input should be greater than or equal"),
        (lambda: CountEncode("a", how="counts"), "did you mean 'count'?"),
    ],
)
def test_wrong_settings_are_explained(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (OneHot("s"), "one_hot: column 's' holds struct<x: int64>: give texts, integers, numbers"),
        (CountEncode("nested"), "lists may hold values, and no other lists"),
        (OneHot("nothing"), "one_hot: column 'nothing' has no values in the training rows"),
    ],
)
def test_wrong_columns_are_explained(operation: Any, message: str) -> None:
    rows = {"s": [{"x": 1}], "nested": [[[1]]], "nothing": [None]}
    with pytest.raises(DataError) as error:
        Pipeline([operation]).fit(rows)
    assert message in str(error.value)
