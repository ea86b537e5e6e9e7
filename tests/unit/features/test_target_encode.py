"""Means of a target: out of fold for training rows, and the same bits however they are gathered."""

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import saved_and_loaded, transformed

from flambeau.errors import ConfigError, DataError
from flambeau.features.operation import TrainingRows
from flambeau.features.operations.encodings import CountEncode, TargetEncode
from flambeau.features.pipeline import Pipeline
from flambeau.features.statistics.target_means import TargetMeans, folds_of_rows

values = st.none() | st.sampled_from(["", "a", "b", "é"])
targets = st.none() | st.sampled_from([0.0, 1.0, 0.1, -2.5, math.nan, 1e6])
FOLDS = 3


def encoded(
    rows: list[Any], train: list[tuple[Any, float | None]], smoothing: float
) -> list[float]:
    """State in Python what the mean of each value is."""
    known = [(value, y) for value, y in train if y is not None and not math.isnan(y)]
    prior = math.fsum(y for _, y in known) / len(known)

    def mean(value: Any) -> float:
        own = [y for each, y in known if each == value and value is not None]
        return (math.fsum(own) + smoothing * prior) / (len(own) + smoothing) if own else prior

    return [mean(value) for value in rows]


def table_of(train: list[tuple[Any, float | None]]) -> pa.Table:
    names, numbers = zip(*train, strict=True)
    return pa.table({"a": pa.array(names, pa.string()), "y": pa.array(numbers, pa.float64())})


@given(
    st.lists(st.tuples(values, targets), min_size=1, max_size=12),
    st.lists(values | st.just("new"), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.5, 20.0]),
)
@settings(max_examples=12)
def test_new_rows_have_the_means_of_all_training_rows(
    train: list[tuple[Any, float | None]], rows: list[Any], smoothing: float
) -> None:
    operation = TargetEncode("a", target="y", smoothing=smoothing, folds=FOLDS)
    if all(y is None or math.isnan(y) for _, y in train):
        with pytest.raises(DataError, match="the target 'y' is missing in all training rows"):
            Pipeline([operation]).fit(table_of(train))
        return
    new = pa.table({"a": pa.array(rows, pa.string())})
    found = transformed(operation, table_of(train), new)
    assert found.schema == pa.schema({"a": pa.float32()})
    assert found["a"].to_pylist() == pytest.approx(encoded(rows, train, smoothing), rel=1e-6)


@given(st.lists(st.tuples(values, targets), min_size=1, max_size=30))
@settings(max_examples=12)
def test_a_training_row_does_not_see_its_own_fold(train: list[tuple[Any, float | None]]) -> None:
    folds = folds_of_rows(0, 0, len(train), FOLDS)
    others = [
        [row for row, fold in zip(train, folds, strict=True) if fold != left_out]
        for left_out in range(FOLDS)
    ]
    if not all(any(y is not None and not math.isnan(y) for _, y in rows) for rows in others):
        return
    pipeline = Pipeline([TargetEncode("a", target="y", smoothing=2.0, folds=FOLDS)])
    table = table_of(train)
    bound = pipeline.fit(table).bind(table.schema)
    (batch,) = table.to_batches()
    found = bound(batch, TrainingRows(0, 0))["a"].to_pylist()
    expected = [
        encoded([value], others[fold], 2.0)[0]
        for (value, _), fold in zip(train, folds, strict=True)
    ]
    assert found == pytest.approx(expected, rel=1e-6)
    cut = len(train) // 2
    parts = [
        bound(batch.slice(0, cut), TrainingRows(0, 0)),
        bound(batch.slice(cut), TrainingRows(0, cut)),
    ]
    assert [x for part in parts for x in part["a"].to_pylist()] == found


def test_a_random_target_is_not_learned_from_a_unique_value() -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({"a": np.arange(1000) // 2, "y": rng.integers(0, 2, 1000)})
    pipeline = Pipeline([TargetEncode("a", target="y", smoothing=1.0)]).fit(rows)
    bound = pipeline.bind(rows.schema)
    (batch,) = rows.to_batches()
    labels = rows["y"].to_numpy()
    leaked = np.corrcoef(bound(batch)["a"].to_numpy(), labels)[0, 1]
    out_of_fold = np.corrcoef(bound(batch, TrainingRows(0, 0))["a"].to_numpy(), labels)[0, 1]
    assert leaked > 0.5
    assert abs(out_of_fold) < 0.1


def test_a_single_training_row_has_its_mean_as_the_prior() -> None:
    rows = pa.table({"a": ["x"], "y": [3.0]})
    bound = Pipeline([TargetEncode("a", target="y")]).fit(rows).bind(rows.schema)
    assert bound(rows.to_batches()[0], TrainingRows(0, 0))["a"].to_pylist() == [3.0]


def test_folds_are_equally_large_and_depend_on_the_shard() -> None:
    folds = folds_of_rows(3, 0, 10_000, 5)
    assert np.bincount(folds).min() > 1900
    assert (folds_of_rows(3, 70, 30, 5) == folds[70:100]).all()
    assert (folds_of_rows(4, 0, 10_000, 5) == folds).mean() < 0.25


def shards(seed: int) -> list[pa.Table]:
    """Return rows whose sums are rounded, and so depend on the order of additions."""
    rng = np.random.default_rng(seed)
    size = 200
    numbers = rng.normal(size=(6, size)) * 10.0 ** rng.integers(-8, 8, (6, size))
    numbers[rng.random((6, size)) < 0.1] = np.nan
    names = rng.choice(np.array([0.5, -0.0, 0.0, math.nan, 7.0, 1e300]), (6, size))
    missing = rng.random((6, size)) < 0.1
    return [pa.table({"v": pa.array(names[i], mask=missing[i]), "y": numbers[i]}) for i in range(6)]


def gathered(tables: list[pa.Table], plan: list[list[int]], draw: random.Random) -> pa.Table:
    """Return the statistic of shards, gathered by several processes with batches of any size."""
    statistic = TargetMeans(("v", "y"), FOLDS)
    parts: dict[int, list[pa.Table]] = {}
    for numbers in plan:
        accumulator = statistic.accumulator()

        def take(accumulator: Any = accumulator) -> None:
            for part, table in accumulator.take().items():
                parts.setdefault(part, []).append(table)

        for number in numbers:
            first, table = 0, tables[number]
            while first < len(table):
                size = draw.choice([1, 7, 64, len(table)])
                batch = table.slice(first, size).combine_chunks()
                arrays = {name: batch[name].combine_chunks() for name in ("v", "y")}
                accumulator.add(arrays, number)
                first += size
                if draw.random() < 0.3:  # memory is short
                    take()
        take()
    return statistic.finish([statistic.merge(parts[part]) for part in sorted(parts)])


def bits(table: pa.Table) -> list[Any]:
    """Return what a statistic holds; numbers as their bits."""
    sums = table["sums"].combine_chunks().flatten().to_numpy().view(np.int64)
    names = table["value"].combine_chunks().fill_null(-1).to_numpy().view(np.int64)
    return [names.tolist(), table["counts"].to_pylist(), sums.tolist()]


@pytest.mark.parametrize("seed", range(4))
def test_bits_do_not_depend_on_who_gathered_what(seed: int) -> None:
    tables = shards(seed)
    draw = random.Random(seed)
    expected = bits(gathered(tables, [list(range(6))], random.Random(-1)))
    for _ in range(4):
        numbers = list(range(6))
        draw.shuffle(numbers)
        cuts = sorted(draw.sample(range(7), 2))
        plan = [numbers[: cuts[0]], numbers[cuts[0] : cuts[1]], numbers[cuts[1] :]]
        assert bits(gathered(tables, plan, draw)) == expected


def test_the_order_of_additions_would_change_bits() -> None:
    tables = shards(0)
    plan = [list(range(6))]
    backwards = [table.take(pa.array(np.arange(len(table))[::-1])) for table in tables]
    one, other = (bits(gathered(each, plan, random.Random(0))) for each in (tables, backwards))
    assert one[2] != other[2]


def test_little_memory_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    rows = pa.table({"a": rng.integers(0, 50, 200_000), "y": rng.normal(size=200_000)})
    much, little = (
        Pipeline([TargetEncode("a", target="y"), CountEncode("a", out="n")]).fit(rows, memory=limit)
        for limit in ("1G", 1)
    )
    assert much.states_ is not None
    assert little.states_ is not None
    assert much.states_[0]["a"].equals(little.states_[0]["a"])
    assert much.transform(rows.slice(0, 99)).equals(little.transform(rows.slice(0, 99)))


def test_the_target_is_needed_for_fitting_only() -> None:
    rows = {"a": ["x", "y"], "b": [1, 2], "y": [0.0, 1.0]}
    pipeline = Pipeline([TargetEncode(["a", "b"], target="y", out="{}_mean")]).fit(rows)
    loaded = saved_and_loaded(pipeline)
    assert loaded.digest == pipeline.digest
    whole = pipeline.transform(rows)
    assert loaded.transform({"a": ["x", "y"], "b": [1, 2]}).equals(whole.drop(["y"]))
    bound = loaded.bind(pa.schema({"b": pa.int64()}), needed=["b_mean"])
    found = bound(pa.record_batch({"b": [1, 2]}))["b_mean"]
    assert found.to_pylist() == whole["b_mean"].to_pylist()


def test_a_target_that_is_itself_encoded_waits_for_that() -> None:
    rows = {"a": ["x", "y", "y"], "b": ["p", "p", "q"]}
    steps = [CountEncode("b", out="n"), TargetEncode("a", target="n", smoothing=0.0)]
    assert Pipeline(steps).fit(rows).transform(rows)["a"].to_pylist() == [2.0, 1.5, 1.5]


def test_booleans_and_integers_are_targets() -> None:
    for kind in (pa.bool_(), pa.int8(), pa.float32(), pa.decimal128(22, 2)):
        target = pa.array([1, 0, 1, None], pa.int64()).cast(kind)
        rows = pa.table({"a": ["x", "y", "x", "y"], "y": target})
        found = transformed(TargetEncode("a", target="y", smoothing=0.0), rows)
        assert found["a"].to_pylist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TargetEncode("a"), "'target' is missing"),
        (lambda: TargetEncode("a", target="y", folds=1), "folds=1: Input should be greater than"),
        (lambda: TargetEncode("a", target="y", smoothing=-1), "smoothing=-1: Input should be gr"),
        (lambda: TargetEncode("a", target="y", smoothing=math.inf), "should be a finite number"),
    ],
)
def test_wrong_settings_are_explained(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (TargetEncode("a", target="yy"), "no column 'yy' for target=; did you mean 'y'?"),
        (TargetEncode("a", target="a"), "'a' is the target, and cannot be encoded by it"),
        (TargetEncode("a", target="t"), "target='t' holds string; give a column of numbers"),
        (TargetEncode("l", target="y"), "give columns with one value in a row"),
        (TargetEncode("a", target="i"), "the target 'i' is infinite in some rows"),
    ],
)
def test_wrong_columns_are_explained(operation: Any, message: str) -> None:
    rows = {"a": [1], "y": [1.5], "t": ["x"], "l": [[1]], "i": [math.inf]}
    with pytest.raises((DataError, ConfigError)) as error:
        Pipeline([operation]).fit(rows)
    assert message in str(error.value)
