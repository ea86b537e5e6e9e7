"""Preparations of files of which some have no rows, or are not there."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau as fb
import flambeau.features as ft
from flambeau.errors import DataError
from flambeau.features.preparing.prepared import Prepared

QUIET = {"progress": "none"}


def prepare(data: object, out: Path, split: object = None) -> Prepared:
    pipeline = ft.Pipeline([ft.Categorify("user")])
    return pipeline.fit_transform(
        data,
        out=out,
        split=split,
        cluster=fb.Local(1),
        observe=QUIET,  # type: ignore[arg-type]
    )


def write_days(folder: Path) -> None:
    """Write days 0 and 3 with rows; day 1 has only names of columns, day 2 is missing."""
    for day, rows in ((0, "a,1\nb,2\n"), (1, ""), (3, "a,3\n")):
        (folder / f"day_{day}.csv").write_text(f"user,time\n{rows}")


def test_days_without_rows_and_missing_days(tmp_path: Path) -> None:
    write_days(tmp_path)
    split = ft.by_file(train="day_[0-2].csv", test="day_3.csv")
    found = prepare(str(tmp_path / "day_*.csv"), tmp_path / "out", split)
    assert found.rows == {"train": 2, "valid": 0, "test": 1}


def test_an_empty_file_is_an_error_or_left_out_by_the_policy_for_bad_rows(tmp_path: Path) -> None:
    write_days(tmp_path)
    (tmp_path / "day_2.csv").touch()
    files = str(tmp_path / "day_*.csv")
    with pytest.raises(DataError, match=r"day_2.csv is empty \(0 bytes\)"):
        prepare(files, tmp_path / "out")
    with pytest.warns(UserWarning, match=r"day_2.csv is empty, and left out"):
        found = prepare(fb.files(files, on_bad_row="skip"), tmp_path / "out")
    assert found.rows["train"] == 3


def test_parquet_files_without_rows(tmp_path: Path) -> None:
    for day, users in enumerate((["a", "b"], [], ["a"])):
        table = pa.table({"user": pa.array(users, pa.string())})
        pq.write_table(table, tmp_path / f"day_{day}.parquet")
    found = prepare(str(tmp_path / "day_*.parquet"), tmp_path / "out")
    assert found.rows["train"] == 3


def test_lines_that_end_with_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"user,time\r\na,1\r\n\r\nb,2\r\n")
    found = prepare(str(tmp_path / "a.csv"), tmp_path / "out")
    assert sorted(pq.read_table(found.train)["time"].to_pylist()) == [1, 2]


def test_a_place_where_a_file_is_or_other_files_are(tmp_path: Path) -> None:
    write_days(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match=r"file: a file is in its place; give another folder"):
        prepare(str(tmp_path / "day_0.csv"), tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="has files that are no prepared features"):
        prepare(str(tmp_path / "day_0.csv"), tmp_path / "folder")
