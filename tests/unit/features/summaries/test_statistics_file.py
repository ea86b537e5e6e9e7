"""The statistics of a prepared folder: what they say of raw columns, features and subsets."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau as fb
import flambeau.features as ft
from flambeau.errors import DataError
from flambeau.features.operation import Operation
from flambeau.features.summaries import summary_plan
from flambeau.features.summaries.report import write_report

QUIET: dict[str, Any] = {"cluster": fb.Local(1), "observe": {"progress": "none"}}


def statistics(
    folder: Path, columns: Any, operations: Sequence[Operation], **values: Any
) -> dict[str, Any]:
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=1000)
    data = str(folder / "rows.parquet")
    ft.Pipeline(operations).fit_transform(data, out=folder / "out", **QUIET, **values)
    found: dict[str, Any] = json.loads((folder / "out" / "statistics.json").read_bytes())
    return found


def users(count: int = 5000) -> pd.Series:
    rng = np.random.default_rng(0)
    names = [f"u{k}" if k else None for k in rng.zipf(1.4, count) % 400]
    return pd.Series(names, dtype=object)


def test_raw_values_with_a_vocabulary_are_counted_exactly(tmp_path: Path) -> None:
    user = users()
    found = statistics(tmp_path, {"user": pa.array(user)}, [ft.Categorify("user")])
    train = found["raw"]["user"]["subsets"]["train"]
    counts = user.value_counts()
    assert (train["rows"], train["missing"]) == (5000, int(user.isna().sum()))
    assert (train["distinct"], train["distinct_error"]) == (len(counts), 0)
    expected = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:20]
    assert [(each["value"], each["count"]) for each in train["top"]] == expected


@pytest.mark.parametrize("subset", ["train", "valid", "test"])
def test_features_are_those_of_the_files(subset: str, tmp_path: Path) -> None:
    split = ft.by_ratio(valid=0.2, test=0.2)
    steps = [ft.Categorify("user", min_count=5), ft.Log("price")]
    price = np.random.default_rng(1).lognormal(2, 1, 5000)
    columns = {"user": pa.array(users()), "price": price}
    found = statistics(tmp_path, columns, steps, split=split)
    table = pq.read_table(tmp_path / "out" / subset).to_pandas()
    ids = found["features"]["user"]["subsets"][subset]
    assert ids["rows"] == len(table) == found["rows"][subset]
    assert ids["unseen"] == int((table["user"] == 0).sum())
    counts = table["user"].value_counts().drop(0)
    assert {each["id"]: each["count"] for each in ids["top"]} == {
        each["id"]: counts[each["id"]] for each in ids["top"]
    }
    assert ids["distinct"] == table["user"].nunique()
    vocabulary = pq.read_table(next((tmp_path / "out" / "pipeline").glob("*.parquet")))
    for each in ids["top"]:
        assert vocabulary["value"][each["id"] - 1].as_py() == each["value"]
    log = found["features"]["price"]["subsets"][subset]
    wide = table["price"].astype(np.float64)
    assert log["mean"] == pytest.approx(wide.mean(), rel=1e-12)
    assert log["std"] == pytest.approx(wide.std(ddof=0), rel=1e-12)
    assert (log["min"], log["max"]) == (wide.min(), wide.max())
    ordered = np.sort(wide)
    assert log["quantiles"]["0.75"] == ordered[int(np.ceil(0.75 * len(ordered))) - 1]
    shares = found["features"]["price"]["histogram"]["shares"][subset]
    assert sum(shares) == pytest.approx(1, abs=1e-4)


def test_columns_that_stay_are_described_once(tmp_path: Path) -> None:
    columns = {"user": pa.array(users()), "price": np.arange(5000.0)}
    found = statistics(tmp_path, columns, [ft.Categorify("user")])
    assert list(found["features"]) == ["user"]
    assert list(found["raw"]) == ["user", "price"]
    assert found["columns"] == ["user", "price"]


def test_numbers_of_lists_and_of_a_shared_vocabulary(tmp_path: Path) -> None:
    columns = {
        "seen": pa.array([["a", "b"], None, [], ["b", None]] * 10),
        "next": pa.array([["b"], ["c"], ["b"], ["b"]] * 10),
    }
    steps = [ft.Categorify(["seen", "next"], shared=True)]
    found = statistics(tmp_path, columns, steps)["features"]["seen"]["subsets"]["train"]
    assert (found["rows"], found["missing"]) == (40, 10)
    assert (found["items"], found["unseen"]) == (40, 10)
    assert found["top"] == [
        {"id": 1, "value": "b", "count": 20},
        {"id": 2, "value": "a", "count": 10},
    ]
    assert (found["distinct"], found["distinct_error"]) == (3, 0)


def warned(found: dict[str, Any], stage: str, name: str) -> set[str]:
    return {warning["kind"] for warning in found[stage][name]["warnings"]}


def test_warnings_name_what_needs_a_look(tmp_path: Path) -> None:
    rng, place = np.random.default_rng(0), np.arange(5000)
    columns = {
        "time": place,
        "steady": rng.normal(size=5000),
        "rising": rng.normal(size=5000) + place / 1000,
        "new": [f"{k // 500}-{k % 7}" for k in place],
        "same": np.ones(5000),
        "rare": pa.array(place, mask=rng.random(5000) < 0.7),
        "none": pa.nulls(5000, pa.float64()),
        "infinite": np.where(place == 7, np.inf, 1.0),
    }
    split = ft.by_time("time", valid=0.1, test=0.1)
    found = statistics(tmp_path, columns, [ft.Categorify("new")], split=split)
    assert warned(found, "raw", "time") == set()  # rows are split by it
    assert warned(found, "raw", "steady") == set()
    assert warned(found, "raw", "rising") == {"drift"}
    assert warned(found, "features", "new") >= {"unseen", "drift"}
    assert warned(found, "raw", "same") == {"constant"}
    assert warned(found, "raw", "rare") >= {"missing"}
    assert warned(found, "raw", "none") == {"all missing"}
    assert warned(found, "raw", "infinite") == {"infinite"}
    assert found["raw"]["rising"]["drift"]["first_to_last"]["index"] > 0.25


def test_a_sample_of_many_rows_is_about_as_large_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_plan, "SAMPLED_ROWS", 1000)
    numbers = np.random.default_rng(0).normal(size=5000)
    found = statistics(tmp_path, {"x": numbers}, [])
    assert found["sampled_fraction"] == 0.2
    train = found["raw"]["x"]["subsets"]["train"]
    assert (train["min"], train["max"]) == (numbers.min(), numbers.max())  # of all rows
    assert train["mean"] == pytest.approx(numbers.mean())
    assert train["quantiles"]["0.5"] == pytest.approx(np.median(numbers), abs=0.15)


def test_what_a_reader_has_done_is_named(tmp_path: Path) -> None:
    lines = ["1\t" + "\t".join(["5"] * 13) + "\t" + "\t".join(["ab"] * 26)] * 3
    (tmp_path / "day_0").write_text("\n".join(lines) + "\n")
    data = fb.files(str(tmp_path / "day_0"), format="criteo")
    ft.criteo().fit_transform(data, out=tmp_path / "out", **QUIET)
    found = json.loads((tmp_path / "out" / "statistics.json").read_bytes())
    assert found["read_with"] == ["log", "hash"]
    assert found["features"]["C1"]["subsets"]["train"]["top"][0]["count"] == 3


def test_a_folder_without_statistics_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no statistics\.json"):
        write_report(tmp_path)
    (tmp_path / "statistics.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        write_report(tmp_path)
    (tmp_path / "statistics.json").write_text('{"version": 99}')
    with pytest.raises(DataError, match="version 99"):
        write_report(tmp_path)
