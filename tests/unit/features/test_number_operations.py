"""Operations on numbers, against plain statements of what they do."""

import math
import statistics
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import transformed

from flambeau.data.sources.text.criteo import open_criteo
from flambeau.errors import ConfigError, DataError
from flambeau.features.operation import Operation
from flambeau.features.operations.cast import Cast
from flambeau.features.operations.numbers import (
    Bucketize,
    Clip,
    FillMissing,
    Log,
    Normalize,
    Threshold,
)
from flambeau.features.pipeline import Pipeline

NAN, INF = math.nan, math.inf
few = settings(max_examples=25)
special = st.sampled_from([NAN, INF, -INF, -0.0, 0.0, 1.0, 2.5, 5e-324, 1.7e308, -1.7e308])
floats = st.none() | special | st.floats()
small = st.none() | st.floats(width=32) | st.sampled_from([NAN, INF, -0.0, 0.5, 1.0])
integers = st.none() | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 0, 1]) | st.integers(-9, 9)
unsigned = st.none() | st.sampled_from([2**64 - 1, 2**64 - 2, 2**63, 0, 1, 2])


def lists(values: st.SearchStrategy[Any], kind: pa.DataType) -> st.SearchStrategy[Any]:
    return st.lists(values, min_size=1, max_size=7).map(lambda found: pa.array(found, kind))


columns = st.one_of(
    lists(floats, pa.float64()),
    lists(small, pa.float32()),
    lists(integers, pa.int64()),
    lists(unsigned, pa.uint64()),
)
bounds = st.sampled_from([-(2**63), -1.5, 0, 0.5, 1, 2.5, 2**53 + 1, 2**63 - 1, 2**64 - 1, 2**70])


def result(operation: Operation, values: pa.Array, rows: pa.Array | None = None) -> list[Any]:
    table = None if rows is None else pa.table({"a": rows})
    found: list[Any] = transformed(operation, {"a": values}, table)["a"].to_pylist()
    return found


def is_missing(value: Any) -> bool:
    return value is None or value != value


def present(values: pa.Array) -> list[Any]:
    return [value for value in values.to_pylist() if not is_missing(value)]


def same(found: list[Any], expected: list[Any]) -> bool:
    """Return whether numbers are the same, with the signs of zeros; NaN equals NaN."""
    return repr(found) == repr(expected)


def failure(operation: Operation, values: Any) -> str:
    with pytest.raises(DataError) as error:
        result(operation, values if isinstance(values, pa.Array) else pa.array(values))
    return str(error.value)


# Missing values


@few
@given(columns)
def test_a_value_fills_what_is_missing(values: pa.Array) -> None:
    expected = [7 if is_missing(value) else value for value in values.to_pylist()]
    kind = float if pa.types.is_floating(values.type) else int
    assert same(result(FillMissing("a", value=7), values), list(map(kind, expected)))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_text_fills_texts(kind: pa.DataType) -> None:
    values = pa.array(["é", None, ""], kind)
    assert result(FillMissing("a", value=""), values) == ["é", "", ""]
    encoded = pa.array(["é", None, "é"]).dictionary_encode()
    assert result(FillMissing("a", value="日本"), encoded) == ["é", "日本", "é"]


@few
@given(columns)
def test_the_most_frequent_value_fills_what_is_missing(values: pa.Array) -> None:
    numbers = present(values)
    if not numbers:
        assert "has no most_frequent" in failure(FillMissing("a", strategy="most_frequent"), values)
        return
    value = max(Counter(numbers).items(), key=lambda item: (item[1], -item[0]))[0] + 0
    expected = [value if is_missing(each) else each for each in values.to_pylist()]
    assert same(result(FillMissing("a", strategy="most_frequent"), values), expected)


@few
@given(columns, st.sampled_from(["mean", "median"]))
def test_the_mean_or_median_fills_what_is_missing(values: pa.Array, strategy: Any) -> None:
    numbers = [value for value in present(values) if abs(value) != INF]
    if not numbers:
        return
    values = pa.array([*numbers, None], values.type)
    function = statistics.mean if strategy == "mean" else statistics.median
    exact = function(list(map(Fraction, numbers)))
    if pa.types.is_integer(values.type):
        expected: float = round(exact)
    else:
        expected = values.type.to_pandas_dtype()(float(exact)).item() + 0.0
    assert same(result(FillMissing("a", strategy=strategy), values), [*numbers, expected])


def test_the_most_frequent_of_any_type_fills_what_is_missing() -> None:
    operation = FillMissing("a", strategy="most_frequent")
    assert result(operation, pa.array([NAN, NAN, 2.0, None])) == [2.0] * 4
    assert result(operation, pa.array(["b", None, "a", "b", "a"]))[1] == "a"
    assert result(operation, pa.array([True, None])) == [True, True]


def test_a_mean_fills_columns_that_have_another_type_than_in_training() -> None:
    operation = FillMissing("a", strategy="mean")
    assert result(operation, pa.array([1.5, 2.0]), pa.array([None, 5])) == [2, 5]
    assert result(operation, pa.array([1.5, 2.0]), pa.array([None])) == [1.75]


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        (
            {"value": 0.5},
            [1],
            "column 'a' holds int64: 0.5 does not fit int64; give a value of tha",
        ),
        ({"value": 300}, pa.array([1], pa.uint8()), "300 does not fit uint8"),
        ({"value": 1e300}, pa.array([1], pa.float32()), "1e+300 does not fit float"),
        ({"value": ""}, [1], "'' does not fit int64"),
        ({"value": 0}, ["a"], "0 does not fit string"),
        ({"value": 0}, [True], "0 does not fit bool"),
        ({"value": True}, [0], "True does not fit int64"),
        ({"value": 0}, [[1]], "column 'a' holds list<item: int64>: 0 does not fit"),
        ({"strategy": "mean"}, ["a"], "column 'a' holds string: give integers or floating-point"),
        ({"strategy": "mean"}, [INF, -INF], "'a' has no mean in the training rows: they have inf"),
        ({"strategy": "median"}, [None], "'a' has no median in the training rows: they have no v"),
        ({"strategy": "most_frequent"}, [None], "column 'a' holds null: the type of its values is"),
    ],
)
def test_what_cannot_be_filled_is_named(
    settings: dict[str, Any], values: Any, message: str
) -> None:
    assert message in failure(FillMissing("a", **settings), values)


# Ranges


@few
@given(columns, st.none() | bounds, st.none() | bounds)
def test_clipped_numbers_are_within_the_range(values: pa.Array, low: Any, high: Any) -> None:
    if (low is None and high is None) or (None not in (low, high) and low > high):
        return
    operation = Clip("a", low=low, high=high)
    if pa.types.is_integer(values.type):
        limits = np.iinfo(values.type.to_pandas_dtype())
        least = limits.min if low is None else max(math.ceil(low), int(limits.min))
        most = limits.max if high is None else min(math.floor(high), int(limits.max))
        if least > most:
            assert "is in the range from low=" in failure(operation, values)
            return
    else:
        dtype = values.type.to_pandas_dtype()
        least = -INF if low is None else dtype(low).item()
        most = INF if high is None else dtype(high).item()
    expected = [
        each if is_missing(each) else least if each < least else most if each > most else each
        for each in values.to_pylist()
    ]
    assert same(result(operation, values), expected)


def test_a_number_at_a_bound_stays_as_it_is() -> None:
    assert same(result(Clip("a", low=0, high=0), pa.array([-0.0, 0.0])), [-0.0, 0.0])


# Logarithms


@few
@given(columns)
def test_logarithms_are_those_of_one_more(values: pa.Array) -> None:
    expected = [0.0 if is_missing(x) else math.log1p(max(x, 0)) for x in values.to_pylist()]
    found = transformed(Log("a"), {"a": values})["a"]
    assert found.type == pa.float32()
    np.testing.assert_array_max_ulp(
        found.to_numpy(), np.array(expected, np.float64).astype(np.float32), maxulp=1
    )


@few
@given(st.lists(st.integers(-9, 2**24) | st.integers(0, 5000).map(lambda n: n / 8), min_size=1))
def test_logarithms_are_those_of_the_reader_of_criteo_logs(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    path = tmp_path_factory.mktemp("criteo") / "rows.tsv"
    path.write_text("".join(f"0\t{value}\n" for value in [*values, ""]))
    read = [_numbers(path, dense) for dense in ("log", "raw")]
    found = Pipeline([Log("I1")]).fit({"I1": read[1]}).transform({"I1": read[1]})["I1"]
    assert found.to_numpy().tobytes() == read[0].to_numpy().tobytes()


def _numbers(path: Path, dense: Any) -> pa.Array:
    source = open_criteo(str(path), dense=dense, dense_columns=1, id_columns=0)
    (batch,) = (batch for shard in source.shards() for batch in source.read(shard, ["I1"]))
    return batch["I1"]


# Scales


@few
@given(columns, st.sampled_from(["standard", "min_max"]), columns)
def test_numbers_are_scaled_by_those_of_the_training_rows(
    train: pa.Array, how: Any, rows: pa.Array
) -> None:
    numbers = [Fraction(value) for value in present(train) if abs(value) != INF]
    train = pa.array([value for value in train.to_pylist() if value not in (INF, -INF)], train.type)
    if not len(train):
        return
    origin, width = 0.0, 0.0
    if numbers and how == "standard":
        origin, width = float(statistics.mean(numbers)), float(statistics.pstdev(numbers))
    elif numbers:
        origin = float(min(numbers))
        width = float(max(numbers)) / 4 - origin / 4
        width = width * 4 if width < 1e307 else width
    found = transformed(Normalize("a", how=how), {"a": train}, pa.table({"a": rows}))["a"]
    assert found.type == pa.float32()
    for value, scaled in zip(rows.to_pylist(), found.to_pylist(), strict=True):
        if is_missing(value):
            assert repr(scaled) == repr(value)
        elif not width or (numbers and len(set(numbers)) == 1):
            assert scaled == 0.0
        elif abs(float(value)) < 1e300 and abs(origin) < 1e300:
            with np.errstate(over="ignore"):
                expected = np.float32((float(value) - origin) / width)
            assert scaled == pytest.approx(expected, rel=1e-6)


def test_the_largest_numbers_have_a_scale() -> None:
    values = pa.array([1.7e308, -1.7e308, 0.0, INF])
    train = values.slice(0, 3)
    assert result(Normalize("a", how="min_max"), train, values) == [1.0, 0.0, 0.5, INF]
    assert result(Normalize("a"), train, values)[:3] == pytest.approx([1.5**0.5, -(1.5**0.5), 0.0])


def test_infinite_training_numbers_have_no_scale() -> None:
    message = "normalize: column 'a' has infinite numbers in the training rows; Clip it first"
    assert message in failure(Normalize("a"), [1.0, INF])


# Buckets


@few
@given(columns, st.sets(bounds, min_size=1))
def test_buckets_begin_at_their_edges(values: pa.Array, edges: set[float]) -> None:
    expected = [
        None if is_missing(value) else sum(value >= edge for edge in edges)
        for value in values.to_pylist()
    ]
    found = transformed(Bucketize("a", edges=sorted(edges)), {"a": values})["a"]
    assert (found.type, found.to_pylist()) == (pa.int64(), expected)


@few
@given(columns, st.integers(2, 5), columns)
def test_quantiles_are_values_of_the_training_rows(
    train: pa.Array, parts: int, rows: pa.Array
) -> None:
    numbers = sorted(present(train))
    cuts = {numbers[len(numbers) * part // parts] for part in range(1, parts) if numbers}
    edges = cuts - set(numbers[:1])
    expected = [
        None if is_missing(value) else sum(value >= edge for edge in edges)
        for value in rows.to_pylist()
    ]
    assert result(Bucketize("a", quantiles=parts), train, rows) == expected


def test_quantiles_hold_equal_numbers_of_rows() -> None:
    pipeline = Pipeline([Bucketize("a", quantiles=4)]).fit({"a": list(range(100))})
    found = pipeline.transform({"a": list(range(100))})["a"].to_pylist()
    assert Counter(found) == {0: 25, 1: 25, 2: 25, 3: 25}
    (operation,) = pipeline.operations
    assert isinstance(operation, Bucketize)
    assert pipeline.schema_ is not None
    assert pipeline.states_ is not None
    assert operation.sizes(pipeline.schema_, pipeline.states_[0]) == {"a": 4}


@few
@given(columns, bounds)
def test_a_threshold_is_reached_or_not(values: pa.Array, least: float) -> None:
    expected = [None if is_missing(x) else float(x >= least) for x in values.to_pylist()]
    found = transformed(Threshold("a", at_least=least, out="label"), {"a": values})["label"]
    assert (found.type, found.to_pylist()) == (pa.float32(), expected)


def test_float32_is_compared_with_the_threshold_itself() -> None:
    values = pa.array([0.1], pa.float32())  # is a little more than 0.1
    assert result(Threshold("a", at_least=0.1), values) == [1.0]
    assert result(Threshold("a", at_least=0.1 + 2e-9), values) == [0.0]
    assert result(Bucketize("a", edges=[0.1 + 2e-9]), values) == [0]


# All of them

NUMERIC: list[Operation] = [
    FillMissing("a", value=0),
    FillMissing("a", strategy="median"),
    Clip("a", low=0),
    Log("a"),
    Normalize("a"),
    Bucketize("a", edges=[0]),
    Bucketize("a", quantiles=2),
    Threshold("a", at_least=0),
    Cast("a", to="text"),
]


@pytest.mark.parametrize("operation", NUMERIC, ids=str)
def test_batches_of_nothing_work(operation: Operation) -> None:
    pipeline = Pipeline([operation]).fit({"a": [1, 2, 3]})
    for kind in (pa.int64(), pa.float32(), pa.null(), pa.dictionary(pa.int8(), pa.int64())):
        for rows in (0, 2):
            batch = pa.record_batch({"a": pa.nulls(rows, kind)})
            found = pipeline.bind(batch.schema)(batch)
            found.validate(full=True)
            assert found.num_rows == rows


@pytest.mark.parametrize("operation", NUMERIC[2:], ids=str)
def test_lists_are_not_numbers(operation: Operation) -> None:
    message = f"{operation}: column 'a' holds list<item: int64>: "
    assert message in failure(operation, [[1, 2]])


@pytest.mark.parametrize("operation", NUMERIC[2:-1], ids=str)
@pytest.mark.parametrize("values", [["1"], [True]])
def test_only_numbers_are_numbers(operation: Operation, values: list[Any]) -> None:
    assert "give integers or floating-point numbers; Cast" in failure(operation, values)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (FillMissing, {}, "give either value=, such as 0 or '', or strategy=, which is 'mean', "),
        (FillMissing, {"value": 0, "strategy": "mean"}, "give either value=, such as 0 or ''"),
        (FillMissing, {"strategy": "avg"}, "strategy='avg': Input should be 'mean', 'median' or"),
        (FillMissing, {"value": NAN}, "value=nan: "),
        (FillMissing, {"value": 2**70}, "neither int64 nor uint64 can hold"),
        (Clip, {}, "give low=, high= or both"),
        (Clip, {"low": 2, "high": 1}, "low=2 is above high=1; give the lesser as low="),
        (Clip, {"low": "1"}, "low='1': Input should be a valid integer or a valid number"),
        (Log, {"base": 2}, "unknown key 'base'"),
        (Normalize, {"how": "std"}, "how='std': Input should be 'standard' or 'min_max'"),
        (Bucketize, {}, "give either edges=[...], or quantiles= with a number of buckets"),
        (Bucketize, {"edges": [2, 1]}, "edges=[2, 1]: give at least one, in increasing order"),
        (Bucketize, {"edges": []}, "edges=[]: give at least one, in increasing order"),
        (Bucketize, {"edges": [1, INF]}, "edges.1=inf: Input should be a valid integer or a fin"),
        (Bucketize, {"quantiles": 1}, "quantiles=1: Input should be greater than or equal to 2"),
        (Threshold, {}, "'at_least' is missing"),
        (Threshold, {"at_least": True}, "at_least=True: Input should be a valid integer"),
        (Cast, {"to": "string"}, "to='string': Input should be 'int8', "),
    ],
)
def test_wrong_settings_say_what_would_be_right(
    kind: type[Operation], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        kind("a", **settings)  # type: ignore[call-arg]
    assert message in str(error.value)
