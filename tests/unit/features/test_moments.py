"""Moments are exact, and the same bits come out however rows are divided."""

import math
import random
import statistics
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.features.operations.numbers import Normalize
from flambeau.features.pipeline import Pipeline
from flambeau.features.statistics.moments import Moments
from flambeau.features.statistics.value_counts import ValueCounts

NAN, INF = math.nan, math.inf
few = settings(max_examples=40)
floats = st.none() | st.floats() | st.sampled_from([NAN, -0.0, 5e-324, 1.7e308, -1.7e308, 0.1])
finite = st.none() | st.just(NAN) | st.floats(allow_nan=False, allow_infinity=False)
integers = st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1])
unsigned = st.none() | st.integers(0, 2**64 - 1) | st.just(2**64 - 1)
typed = st.one_of(
    st.tuples(st.lists(finite, max_size=12), st.just(pa.float64())),
    st.tuples(st.lists(integers, max_size=12), st.just(pa.int64())),
    st.tuples(st.lists(unsigned, max_size=12), st.just(pa.uint64())),
)

#: What is gathered: rows of a shard.
Added = tuple[int, Sequence[float | None]]


def gathered(added: Sequence[Added], kind: pa.DataType = None) -> pa.Table:
    accumulator = Moments(("a",)).accumulator()
    for shard, values in added:
        accumulator.add({"a": pa.array(values, kind or pa.float64())}, shard)
    (table,) = accumulator.take().values()
    return table


def finished(*tables: pa.Table) -> dict[str, Any]:
    statistic = Moments(("a",))
    (row,) = statistic.finish([statistic.merge(tables)]).to_pylist()
    return row


def present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None and value == value]


@few
@given(typed)
def test_they_are_those_of_exact_arithmetic(given: tuple[list[Any], pa.DataType]) -> None:
    values, kind = given
    found = finished(gathered([(0, values)], kind))
    numbers = present(values)
    assert found["count"] == len(numbers)
    if not numbers:
        assert found == {"column": "a", "count": 0, **dict.fromkeys(("min", "max", "mean", "std"))}
        return
    assert found["mean"] == float(sum(map(Fraction, numbers)) / len(numbers))
    assert (found["min"], found["max"]) == (float(min(numbers)), float(max(numbers)))
    expected = statistics.pstdev(map(Fraction, numbers))
    assert abs(found["std"] - float(expected)) <= 2 * math.ulp(float(expected))


@few
@given(st.lists(st.lists(floats, max_size=6), min_size=1, max_size=8), st.randoms())
def test_how_shards_are_divided_makes_no_difference(
    shards: list[list[float | None]], chance: random.Random
) -> None:
    whole = finished(gathered(list(enumerate(shards))))
    dealt = list(enumerate(shards))
    chance.shuffle(dealt)
    cuts = sorted(chance.choices(range(len(dealt) + 1), k=2))
    thirds = [dealt[: cuts[0]], dealt[cuts[0] : cuts[1]], dealt[cuts[1] :]]
    tables = [gathered(third) for third in thirds if third]
    assert repr(finished(*tables)) == repr(whole)


@few
@given(st.lists(floats, min_size=1, max_size=12), st.randoms())
def test_neither_batches_nor_order_nor_spills_make_a_difference(
    values: list[float | None], chance: random.Random
) -> None:
    whole = finished(gathered([(0, values)]))
    shuffled = chance.sample(values, len(values))
    batches = [(0, [value]) for value in shuffled]
    assert repr(finished(gathered(batches))) == repr(whole)
    assert repr(finished(*(gathered([batch]) for batch in batches))) == repr(whole)


def test_merged_tables_can_be_merged_again() -> None:
    statistic = Moments(("a",))
    one, two, three = (gathered([(shard, [0.1 * shard, 1e17])]) for shard in range(3))
    assert finished(statistic.merge([one, two]), three) == finished(one, two, three)


def test_signs_of_zeros_make_no_difference() -> None:
    one, two = gathered([(0, [0.0])]), gathered([(1, [-0.0])])
    assert repr(finished(one, two)) == repr(finished(two, one)) == repr(finished(one, one))


def test_small_deviations_of_large_numbers_are_kept() -> None:
    found = finished(gathered([(0, [1e15, 1e15 + 1, 1e15 + 2])]))
    assert found["mean"] == 1e15 + 1
    assert found["std"] == pytest.approx(math.sqrt(2 / 3), rel=1e-15)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([INF, 1.0], INF), ([-INF, 1.0], -INF), ([INF, -INF], NAN), ([INF, INF, NAN], INF)],
)
def test_means_of_infinite_numbers_are_infinite(values: list[float], mean: float) -> None:
    found = finished(gathered([(0, values)]))
    assert found["mean"] == pytest.approx(mean, nan_ok=True)
    assert math.isnan(found["std"])
    assert (found["min"], found["max"]) == (min(values[:2]), max(values[:2]))


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.int8(), pa.uint32(), pa.int64()])
def test_all_types_of_numbers_have_moments(kind: pa.DataType) -> None:
    found = finished(gathered([(0, pa.array([1.0, None, 4.0]).cast(kind).to_pylist())], kind))
    assert found == {"column": "a", "count": 2, "min": 1.0, "max": 4.0, "mean": 2.5, "std": 1.5}


def test_columns_have_moments_of_their_own() -> None:
    statistic = Moments(("b", "a", "nothing", "coded"))
    accumulator = statistic.accumulator()
    coded = pa.array([7, 7, None]).dictionary_encode()
    arrays = {"a": pa.array([1, 2, None]), "b": pa.array([None, 3.0, NAN])}
    accumulator.add({**arrays, "nothing": pa.nulls(3), "coded": coded}, 0)
    assert accumulator.nbytes > 0
    found = statistic.finish(list(accumulator.take().values()))
    assert found["column"].to_pylist() == ["b", "a", "nothing", "coded"]
    assert found["count"].to_pylist() == [1, 2, 0, 2]
    assert found["mean"].to_pylist() == [3.0, 1.5, None, 7.0]
    assert found["std"].to_pylist() == [0.0, 0.5, None, 0.0]


def test_an_accumulator_begins_anew() -> None:
    accumulator = Moments(("a",)).accumulator()
    assert accumulator.take() == {}
    accumulator.add({"a": pa.array([1.0])}, 0)
    assert len(accumulator.take()) == 1
    assert accumulator.nbytes == 0
    assert accumulator.take() == {}


def test_zeros_of_both_signs_are_one_value_wherever_they_are_counted() -> None:
    statistic = ValueCounts(("a",))
    tables = []
    for values in ([0.0, NAN], [-0.0, NAN, 2.0]):
        accumulator = statistic.accumulator()
        accumulator.add({"a": pa.array(values, pa.float32())}, 0)
        tables.append(accumulator.take())
    merged = [statistic.merge([tables[0][part], tables[1][part]]) for part in tables[0]]
    found = statistic.finish(merged).to_pydict()
    assert repr(found) == repr({"value": [0.0, NAN, 2.0], "count": [2, 2, 1]})


def test_a_pipeline_that_spills_gives_the_same() -> None:
    table = pa.table({"a": [0.1, 0.2, None, 1e9], "b": [1, 2, 3, -(2**63)]})
    whole = Pipeline([Normalize(["a", "b"])]).fit(table)
    spilled = Pipeline([Normalize(["a", "b"])]).fit(table, memory=1)
    assert spilled.transform(table).equals(whole.transform(table))
