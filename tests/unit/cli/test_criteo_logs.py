"""Which files are Criteo's logs, and which of their rows are for what."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flambeau.cli.criteo.logs import Logs, Mode, find_logs, parse_days
from flambeau.config import FileData
from flambeau.data.source import StreamedSource
from flambeau.data.sources.opening import open_source
from flambeau.errors import ConfigError, DataError

ROW = "\t".join(["0", *["1"] * 13, *["68fd1e64"] * 26])


def write(path: Path, rows: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(ROW + "\n" for _ in range(rows)))


def days(folder: Path, *numbers: int, suffix: str = "") -> Path:
    for number in numbers:
        write(folder / f"day_{number}{suffix}", 10)
    return folder


def rows(data: FileData) -> int:
    source = open_source(data, lambda ref: None)
    assert isinstance(source, StreamedSource)
    return sum(shard.rows for shard in source.shards())


def subsets(logs: Logs) -> tuple[int, int, int]:
    return rows(logs.train), rows(logs.valid), rows(logs.test)


def names(data: FileData) -> list[str]:
    paths = [data.path] if isinstance(data.path, str) else data.path
    return [Path(path).name for path in paths]


def test_kaggle_cuts_one_file_in_the_order_of_its_rows(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", 28)
    logs = find_logs(str(tmp_path), Mode.KAGGLE)
    assert subsets(logs) == (24, 2, 2)
    assert logs.unlabelled is None


def test_kaggle_predicts_what_has_no_labels(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", 28)
    (tmp_path / "test.txt").write_text(ROW.partition("\t")[2] + "\n")
    logs = find_logs(str(tmp_path), Mode.KAGGLE)
    assert logs.unlabelled is not None
    assert rows(logs.unlabelled) == 1
    assert rows(logs.all) == 28


def test_kaggle_takes_a_file_of_any_name(tmp_path: Path) -> None:
    write(tmp_path / "clicks.log", 14)
    assert subsets(find_logs(str(tmp_path / "clicks.log"), Mode.KAGGLE)) == (12, 1, 1)


def test_kaggle_does_not_guess_among_files(tmp_path: Path) -> None:
    days(tmp_path, 0, 1)
    with pytest.raises(DataError, match=r"takes one file .* found 2 files: day_0, day_1"):
        find_logs(str(tmp_path), Mode.KAGGLE)


def test_small_trains_on_four_days_and_halves_the_last(tmp_path: Path) -> None:
    logs = find_logs(str(days(tmp_path, *range(24))), Mode.SMALL)
    assert names(logs.train) == ["day_0", "day_1", "day_2", "day_3"]
    assert subsets(logs) == (40, 5, 5)
    assert names(logs.all)[-1] == "day_23"


def test_full_trains_on_all_other_days(tmp_path: Path) -> None:
    logs = find_logs(str(days(tmp_path, *range(24), suffix=".tsv")), Mode.FULL)
    assert subsets(logs) == (230, 5, 5)


def test_other_days_can_be_named(tmp_path: Path) -> None:
    folder = days(tmp_path, *range(7), suffix=".txt")
    logs = find_logs(str(folder), Mode.SMALL, train_days="0,2-3", test_day=6)
    assert names(logs.train) == ["day_0.txt", "day_2.txt", "day_3.txt"]
    assert names(logs.test) == ["day_6.txt"]


def test_a_missing_day_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file for days 1, 3; .*--train-days"):
        find_logs(str(days(tmp_path, 0, 2, 23)), Mode.SMALL)


def test_an_empty_day_is_an_error_if_it_is_needed(tmp_path: Path) -> None:
    raw = days(tmp_path, 0, 1, 2, 3, 23)
    (raw / "day_5").touch()
    assert subsets(find_logs(str(raw), Mode.SMALL)) == (40, 5, 5)
    with pytest.raises(DataError, match=r"day_5 is empty"):
        find_logs(str(raw), Mode.SMALL, train_days="0-5")


@pytest.mark.parametrize("count", [8, 15, 27, 28])
def test_prepared_rows_are_those_of_the_shares(count: int, tmp_path: Path) -> None:
    """A row that is to validate in one way to train must not be to test with in the other."""
    write(tmp_path / "kaggle" / "train.txt", count)
    write(days(tmp_path / "days", 0, 1, 2, 3) / "day_23", count)
    for folder, mode in (("kaggle", Mode.KAGGLE), ("days", Mode.SMALL)):
        logs = find_logs(str(tmp_path / folder), mode)
        source = open_source(logs.all, lambda ref: None)
        assert isinstance(source, StreamedSource)
        shards = source.shards()
        assign = logs.split.bind(shards, {})
        found = [
            assign({"label": pa.nulls(shard.rows)}, number, 0)
            for number, shard in enumerate(shards)
        ]
        assert tuple(np.bincount(np.concatenate(found), minlength=3)) == subsets(logs)


def test_a_missing_day_is_skipped_like_bad_rows(tmp_path: Path) -> None:
    folder = days(tmp_path, 0, 2, 23)
    with pytest.warns(UserWarning, match=r"no file for days 1, 3; training continues without it"):
        logs = find_logs(str(folder), Mode.SMALL, options={"on_bad_row": "skip"})
    assert rows(logs.train) == 20


def test_without_the_day_to_test_there_is_no_way(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file for day 23 .*it has days 0, 1: .*--test-day"):
        find_logs(str(days(tmp_path, 0, 1)), Mode.SMALL, options={"on_bad_row": "skip"})


def test_a_day_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    days(tmp_path, 0, 23)
    days(tmp_path, 0, suffix=".tsv")
    with pytest.raises(DataError, match=r"day 0 is there twice"):
        find_logs(str(tmp_path), Mode.SMALL)


@pytest.mark.parametrize(
    ("given", "found"), [("0-3", [0, 1, 2, 3]), ("5", [5]), ("0, 2-3,2", [0, 2, 3])]
)
def test_days_are_written_as_ranges(given: str, found: list[int]) -> None:
    assert parse_days(given) == found


@pytest.mark.parametrize("given", ["", "a-b", "3-1", "1-", "-1"])
def test_what_is_no_range_of_days_is_an_error(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--train-days"):
        parse_days(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": Mode.SMALL, "test_day": 2}, r"day 2 cannot be both"),
        ({"mode": Mode.KAGGLE, "test_day": 2}, r"are for --mode small and full"),
    ],
)
def test_what_contradicts_itself_is_an_error(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        find_logs(str(days(tmp_path, *range(24))), **given)
