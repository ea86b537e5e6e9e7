"""Splits: every row is in one subset, and nothing leaks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flambeau.features as ft
from flambeau.data.source import Shard
from flambeau.errors import ConfigError, DataError
from flambeau.features.splits import TEST, TRAIN, UNUSED, VALID, Split
from flambeau.features.statistics.value_counts import ValueCounts

SHARDS = [Shard("logs/day_0", 0, 600), Shard("logs/day_1", 0, 400)]


def subsets(split: Split, shards: list[Mapping[str, Any]], state: Any = None) -> np.ndarray:
    assign = split.bind(SHARDS, state or {})
    found = [
        assign({name: pa.array(column) for name, column in arrays.items()}, number, 0)
        for number, arrays in enumerate(shards)
    ]
    return np.concatenate(found)


def columns(**given: Any) -> list[dict[str, Any]]:
    return [
        {name: values[start:stop] for name, values in given.items()}
        for start, stop in ((0, 600), (600, 1000))
    ]


def test_fractions_in_order_are_the_last_rows() -> None:
    found = subsets(ft.by_ratio(0.1, 0.2, shuffle=False), columns(x=np.arange(1000)))
    assert (found[:700] == TRAIN).all()
    assert (found[700:800] == VALID).all()
    assert (found[800:] == TEST).all()


def test_fractions_at_random_are_about_met_and_the_same_each_time() -> None:
    rows = columns(x=np.arange(1000))
    found = subsets(ft.by_ratio(0.1, 0.2, seed=1), rows)
    assert abs((found == VALID).mean() - 0.1) < 0.03
    assert abs((found == TEST).mean() - 0.2) < 0.04
    assert (found == subsets(ft.by_ratio(0.1, 0.2, seed=1), rows)).all()
    assert (found != subsets(ft.by_ratio(0.1, 0.2, seed=2), rows)).any()


def test_rows_with_one_value_are_in_one_subset() -> None:
    users = np.arange(1000) % 50
    found = subsets(ft.by_hash("user", 0.2, 0.2), columns(user=[f"u{x}" for x in users]))
    for user in range(50):
        assert len(set(found[users == user])) == 1
    assert set(found) == {TRAIN, VALID, TEST}


@pytest.mark.parametrize(("valid", "test"), [(0.1, 0.1), (0.0, 0.2), (0.3, 0.0)])
def test_later_rows_validate_and_test(valid: float, test: float) -> None:
    times = np.random.default_rng(0).integers(0, 200, 1000)
    split = ft.by_time("time", valid, test)
    counted = ValueCounts(("time",))
    accumulator = counted.accumulator()
    accumulator.add({"time": pa.array(times)}, 0)
    state = {"times": counted.finish([counted.merge([t]) for t in accumulator.take().values()])}
    found = subsets(split, columns(time=times), state)
    by_time = {time: set(found[times == time]) for time in np.unique(times)}
    assert all(len(each) == 1 for each in by_time.values())
    order = [next(iter(by_time[time])) for time in sorted(by_time)]
    assert order == sorted(order)
    assert abs((found == TEST).mean() - test) < 0.02
    assert abs((found == VALID).mean() - valid) < 0.02


def test_a_missing_time_is_an_error() -> None:
    state = {"times": pa.table({"value": [1, 2], "count": [1, 1]})}
    with pytest.raises(DataError, match="column 'time' has no value in row 1 of shard 0"):
        subsets(ft.by_time("time", 0.5), [{"time": [1, None]}], state)


def test_files_are_chosen_by_name() -> None:
    rows = columns(x=np.arange(1000))
    found = subsets(ft.by_file("day_0", test="day_1"), rows)
    assert (found[:600] == TRAIN).all()
    assert (found[600:] == TEST).all()
    assert (subsets(ft.by_file("*/day_1"), rows)[:600] == UNUSED).all()


def test_a_file_of_two_subsets_is_cut_in_the_order_of_its_rows() -> None:
    found = subsets(ft.by_file("day_0", valid="day_1", test="day_1"), columns(x=np.arange(1000)))
    assert (found[:600] == TRAIN).all()
    assert (found[600:800] == VALID).all()
    assert (found[800:] == TEST).all()


def test_a_pattern_without_files_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no file matches test='day_23'; files: day_0, day_1"):
        ft.by_file("day_0", test="day_23").bind(SHARDS, {})


def test_fractions_leave_rows_to_train_on() -> None:
    with pytest.raises(ConfigError, match=r"leave no rows to train on"):
        ft.by_ratio(0.5, 0.5)
    with pytest.raises(ConfigError, match=r"valid=1.5"):
        ft.by_time("time", valid=1.5)
