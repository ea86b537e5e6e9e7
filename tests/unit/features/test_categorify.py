"""Vocabularies: numbers by frequency, the same however rows are divided."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau.features as ft
from flambeau.errors import ConfigError, DataError
from flambeau.features.statistics.partial_files import Gathering, finish_files
from flambeau.features.statistics.value_counts import ValueCounts

TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "日本", "a b", "A"]), st.text())
INTEGERS = st.one_of(
    st.none(), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-5, 5)
)


def expected_ids(values: list[Any], min_count: int = 1, max_size: int | None = None) -> list[int]:
    """What the operation promises, in plain Python."""
    counts = Counter(value for value in values if value is not None)
    kept = [value for value, count in counts.items() if count >= min_count]
    as_bytes = {value: value.encode() if isinstance(value, str) else value for value in kept}
    order = sorted(kept, key=lambda value: (-counts[value], as_bytes[value]))[:max_size]
    numbers = {value: number + 1 for number, value in enumerate(order)}
    return [numbers.get(value, 0) for value in values]


@given(st.lists(TEXTS, min_size=1, max_size=40), st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_texts_are_numbered_by_frequency_then_by_their_bytes(
    values: list[str | None], min_count: int
) -> None:
    table = pa.table({"x": pa.array(values, pa.string())})
    pipeline = ft.Pipeline([ft.Categorify("x", min_count=min_count)]).fit(table)
    assert pipeline.transform(table)["x"].to_pylist() == expected_ids(values, min_count)


@given(st.lists(INTEGERS, min_size=1, max_size=40), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_integers_are_numbered_by_frequency_then_by_size(
    values: list[int | None], max_size: int
) -> None:
    table = pa.table({"x": pa.array(values, pa.int64())})
    pipeline = ft.Pipeline([ft.Categorify("x", max_size=max_size)]).fit(table)
    assert pipeline.transform(table)["x"].to_pylist() == expected_ids(values, 1, max_size)


def test_items_of_lists_are_numbered_in_their_lists() -> None:
    data = {"x": [["a", "b"], [], None, ["b", None, "c"]]}
    found = ft.Pipeline([ft.Categorify("x")]).fit(data).transform(data)
    assert found["x"].to_pylist() == [[2, 1], [], None, [1, 0, 3]]


def test_columns_can_share_a_vocabulary() -> None:
    data = {"user": ["a", "b"], "friend": ["b", "c"]}
    pipeline = ft.Pipeline([ft.Categorify(["user", "friend"], shared=True)]).fit(data)
    assert pipeline.transform(data).to_pydict() == {"user": [2, 1], "friend": [1, 3]}


def test_columns_of_different_types_cannot_share_a_vocabulary() -> None:
    data = {"user": ["a"], "friend": [1]}
    with pytest.raises(DataError, match=r"columns that share a vocabulary hold int64, string"):
        ft.Pipeline([ft.Categorify(["user", "friend"], shared=True)]).fit(data)


def test_values_that_are_new_are_zero() -> None:
    pipeline = ft.Pipeline([ft.Categorify("x")]).fit({"x": ["a", "a", "b"]})
    assert pipeline.transform({"x": ["b", "z", "", None]})["x"].to_pylist() == [2, 0, 0, 0]


def test_numbers_of_a_narrower_type_are_the_same_values() -> None:
    pipeline = ft.Pipeline([ft.Categorify("x")]).fit({"x": np.array([7, 7, 9])})
    assert pipeline.transform({"x": np.array([9, 7], np.int16)})["x"].to_pylist() == [2, 1]


@pytest.mark.parametrize("limit", [1, 200, 1 << 30])
def test_counts_do_not_depend_on_what_was_spilled(limit: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    batches = [pa.array([f"v{x}" for x in rng.zipf(1.3, 500) % 97]) for _ in range(4)]
    gathering = Gathering(ValueCounts(("x",)), tmp_path, "0")
    for number, batch in enumerate(batches):
        gathering.accumulator.add({"x": batch}, number)
        if gathering.accumulator.nbytes > limit:
            gathering.spill()
    counts = Counter(value for batch in batches for value in batch.to_pylist())
    found = gathering.finish()
    assert dict(zip(*found.to_pydict().values(), strict=True)) == counts
    assert found["count"].to_pylist() == sorted(counts.values(), reverse=True)


def test_parts_that_were_gathered_apart_give_the_same_table(tmp_path: Path) -> None:
    statistic = ValueCounts(("x",), min_count=2)
    values = [["a", "b", "b"], ["c", "a"], [], ["b", "d", "a"]]
    files = []
    for number, part in enumerate(values):
        gathering = Gathering(statistic, tmp_path, str(number))
        gathering.accumulator.add({"x": pa.array(part, pa.string())}, number)
        gathering.spill()
        files += gathering.files
    whole = Gathering(statistic, tmp_path, "whole")
    whole.accumulator.add({"x": pa.array([v for part in values for v in part])}, 0)
    assert finish_files(statistic, files).equals(whole.finish())
    assert finish_files(statistic, files[::-1]).equals(finish_files(statistic, files))


def test_columns_are_chosen_by_range_and_pattern() -> None:
    data = {"C1": [1], "C2": [2], "C10": [3], "label": [4]}
    ranged = ft.Pipeline([ft.Categorify("C1:C2", out="{}_id")]).fit(data).transform(data)
    assert ranged.column_names == ["C1", "C2", "C10", "label", "C1_id", "C2_id"]
    found = ft.Pipeline([ft.Categorify("C*")]).fit(data).transform(data)
    assert [found[name].to_pylist() for name in data] == [[1], [1], [1], [4]]


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="there is no column 'usr'; did you mean 'user'"):
        ft.Pipeline([ft.Categorify("usr")]).fit({"user": [1]})
    with pytest.raises(ConfigError, match="min_count=0"):
        ft.Categorify("x", min_count=0)
    with pytest.raises(ConfigError, match=r"out= has 1 names for 2 columns"):
        ft.Pipeline([ft.Categorify(["x", "y"], out="z")]).fit({"x": [1], "y": [2]})
    with pytest.raises(ConfigError, match="not fitted"):
        ft.Pipeline([ft.Categorify("x")]).transform({"x": [1]})
    with pytest.raises(DataError, match="no training rows"):
        ft.Pipeline([ft.Categorify("x")]).fit({"x": pa.array([], pa.int64())})
    with pytest.raises(ConfigError, match=r"operations such as"):
        ft.Pipeline(["x"])  # type: ignore[list-item]
