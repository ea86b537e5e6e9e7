"""Statistics of columns against plain statements of numpy."""

import itertools
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flambeau.features.summaries.column_statistics import ColumnStatistics
from flambeau.features.summaries.column_summary import ColumnSummarizer, ColumnSummary

INT64 = np.iinfo(np.int64)


def summary_of(column: pa.Array, parts: int = 1) -> ColumnSummary:
    """Return the summary of a column that was gathered in some parts, all of it sampled."""
    bounds = np.linspace(0, len(column), parts + 1).astype(int)
    merged, samples = ColumnSummary(), []
    for first, last in itertools.pairwise(bounds):
        part = column.slice(first, last - first)
        gathered = ColumnSummarizer(column.type)
        for start in range(0, max(1, len(part)), 500):
            rows = part.slice(start, 500)
            gathered.add(rows, pa.array(np.arange(len(rows))))
        found = gathered.found()
        merged = merged.merge(found)
        samples.append(found.sample)
    return merged.with_sample(pa.concat_arrays(samples))


def statistics(column: pa.Array, parts: int = 1) -> dict[str, Any]:
    """Return the statistics of a column whose rows are all to train on."""
    found = ColumnStatistics(column.type, {"train": summary_of(column, parts)}).values()
    json.dumps(found, allow_nan=False)
    return dict(found["subsets"]["train"])


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_moments_are_those_of_numpy(parts: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(1000, 1, 3000) * scale
    found = statistics(pa.array(numbers), parts)
    assert found["min"] == numbers.min()
    assert found["max"] == numbers.max()
    assert found["mean"] == pytest.approx(numbers.mean(), rel=1e-12)
    assert found["std"] == pytest.approx(numbers.std(), rel=1e-9)
    ordered = np.sort(numbers)
    assert found["quantiles"]["0.5"] == ordered[1499]


def test_missing_infinite_and_zero_numbers_are_counted() -> None:
    numbers = [1.5, None, math.nan, math.inf, -math.inf, 0.0, -0.0, math.inf]
    found = statistics(pa.array(numbers), 2)
    assert found["rows"] == 8
    assert found["missing"] == 2
    assert found["infinite"] == 3
    assert found["zeros"] == 2
    assert (found["min"], found["max"], found["mean"]) == (0.0, 1.5, 0.5)
    assert found["distinct"] == 4  # 1.5, 0, and both infinite ones
    assert found["top"][:2] == [{"value": 0.0, "count": 2}, {"value": "inf", "count": 2}]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.int64(), [INT64.min, INT64.max, INT64.max, -1, None]),
        (pa.uint64(), [0, 2**64 - 1, 2**64 - 1, 2**63, None]),
        (pa.int8(), [-128, 127, 127, 0, None]),
    ],
)
def test_extreme_integers_are_exact(kind: pa.DataType, numbers: Sequence[int | None]) -> None:
    found = statistics(pa.array(numbers, kind), 2)
    present = [number for number in numbers if number is not None]
    assert (found["min"], found["max"]) == (min(present), max(present))
    assert found["top"][0] == {"value": max(present), "count": 2}
    assert found["distinct"] == 3
    assert found["missing"] == 1
    assert found["mean"] == pytest.approx(sum(present) / 4, rel=1e-12)
    assert found["quantiles"]["0.99"] == max(present)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_texts_are_counted_as_they_are(kind: pa.DataType) -> None:
    texts = ["", "Köln", "köln", None, "日本", "Köln", "<script>", "", "", "🦊"]
    found = statistics(pa.array(texts).cast(kind), 3)
    assert found["missing"] == 1
    assert (found["distinct"], found["distinct_error"]) == (6, 0)
    assert found["top_low_by"] == 0
    assert found["top"][:2] == [{"value": "", "count": 3}, {"value": "Köln", "count": 2}]
    assert [each["value"] for each in found["top"][2:]] == ["<script>", "köln", "日本", "🦊"]


def test_bytes_and_long_texts_can_be_written() -> None:
    found = statistics(pa.array([b"\xff\x00", b"a" * 500]))
    assert found["top"][0]["value"] == "a" * 99 + "…"
    assert found["top"][1]["value"] == "\\xff\x00"


def test_of_lists_rows_and_items_are_counted() -> None:
    found = statistics(pa.array([[1, 2], None, [], [2, None, 5]]), 2)
    assert (found["rows"], found["missing"]) == (4, 1)
    assert (found["items"], found["missing_items"]) == (5, 1)
    assert (found["min"], found["max"], found["mean"]) == (1, 5, 2.5)
    assert found["top"][0] == {"value": 2, "count": 2}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("1.5"), None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
        pa.array([b"ab", None], pa.binary(2)),
        pa.array([b"ab", None], pa.binary_view()),
        pa.array([["a"], None], pa.list_(pa.string_view())),
        pa.array([{"a": 1}, None]),
    ],
)
def test_of_other_values_only_the_missing_ones_are_counted(column: pa.Array) -> None:
    found = statistics(column)
    assert (found["rows"], found["missing"]) == (2, 1)
    assert "distinct" not in found


def test_times_are_texts() -> None:
    times = np.array(["2026-01-31T10:00", "1969-12-31T23:59", "NaT"], "datetime64[s]")
    found = statistics(pa.array(times))
    assert (found["min"], found["max"]) == ("1969-12-31 23:59:00", "2026-01-31 10:00:00")
    assert found["missing"] == 1
    dates = statistics(pa.array([0, 365], pa.date32()))
    assert (dates["min"], dates["max"]) == ("1970-01-01", "1971-01-01")


def test_truth_values_have_their_names() -> None:
    found = statistics(pa.array([True, False, True, None]))
    assert found["top"] == [{"value": True, "count": 2}, {"value": False, "count": 1}]
    assert found["mean"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, None]),
        pa.array([None, None], pa.float32()),
        pa.array([None, None], pa.string()),
        pa.array([None, None], pa.list_(pa.int64())),
        pa.array([None, None], pa.struct({"a": pa.int8()})),
        pa.array([math.nan, None], pa.float64()),
    ],
)
def test_a_column_without_values_is_all_missing(column: pa.Array) -> None:
    found = statistics(column)
    assert (found["rows"], found["missing"]) == (2, 2)
    assert "mean" not in found


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.int64(), pa.bool_()])
def test_no_rows_have_statistics(kind: pa.DataType) -> None:
    found = statistics(pa.array([], kind))
    assert (found["rows"], found["missing"], found["distinct"]) == (0, 0, 0)


def test_one_row_has_statistics() -> None:
    found = statistics(pa.array([-2.5]))
    assert (found["min"], found["max"], found["mean"], found["std"]) == (-2.5, -2.5, -2.5, 0)
    assert (found["distinct"], found["distinct_error"]) == (1, 0)


def test_sums_beyond_the_largest_number_are_left_out() -> None:
    found = statistics(pa.array([1e308, -1e308, 1e308]), 3)
    assert (found["min"], found["max"]) == (-1e308, 1e308)
    assert found["std"] is None


@pytest.mark.parametrize("kind", ["integers", "floats", "texts"])
@pytest.mark.parametrize("size", [600, 5_000, 20_000, 300_000])
def test_many_distinct_values_are_estimated(kind: str, size: int) -> None:
    values: Any = np.arange(size) - size // 2
    if kind == "floats":
        values = values * 0.1
    column = pa.array(values).cast(pa.string()) if kind == "texts" else pa.array(values)
    found = statistics(pa.concat_arrays([column, column]), 3)
    assert found["distinct"] == pytest.approx(size, rel=4 * found["distinct_error"])
    assert found["distinct_error"] == 0.0163


@pytest.mark.parametrize("parts", [1, 5])
def test_frequent_values_among_many_are_found_with_a_bound(parts: int) -> None:
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random(100_000) < 0.3, rng.integers(0, 5, 100_000), np.arange(100_000))
    found = statistics(pa.array(numbers), parts)
    slack = found["top_low_by"]
    assert 0 < slack <= len(numbers) / 256
    assert {each["value"] for each in found["top"][:5]} == set(range(5))
    for each in found["top"]:
        true = int((numbers == each["value"]).sum())
        assert each["count"] <= true <= each["count"] + slack


def test_values_that_are_all_different_have_no_top() -> None:
    assert statistics(pa.array(np.arange(50_000)))["top"] == []
