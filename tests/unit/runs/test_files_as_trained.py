"""Files that a run is asked about are read as those of its training were."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.data.source import Source, StreamedSource
from flambeau.data.sources.parquet import ParquetSource
from flambeau.errors import DataError
from flambeau.runs.trained_run import open_given

TRAIN = {"path": "train.tsv", "format": "criteo", "options": {"labels": ["click", "bought"]}}
ROW = "\t".join(["1", "0", *["3"] * 13, *["68fd1e64"] * 26]) + "\n"


def opened(tmp_path: Path, name: str = "a.tsv", **given: Any) -> Source:
    file = tmp_path / name
    file.write_text(ROW + ROW.replace("3", "x", 1) + ROW)
    train = FileData(**TRAIN)
    settings = JobSettings(model=CodeRef(path="m:thing"), train=train, batch_size=4)
    return open_given(RunDirectory(tmp_path / "run"), settings, FileData(path=str(file), **given))


def test_an_option_comes_to_those_of_the_training(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 bad row of the data was left out"):
        source = opened(tmp_path, options={"on_bad_row": "skip"})
    assert source.schema.names[:3] == ["click", "bought", "I1"]


def test_the_same_format_may_be_named_and_files_be_called_otherwise(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 bad row of the data was left out"):
        source = opened(tmp_path, "a.log", format="criteo", options={"on_bad_row": "skip"})
    assert source.schema.names[:3] == ["click", "bought", "I1"]


def test_an_option_takes_the_place_of_the_training_s(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows, only 3 bad rows"):
        opened(tmp_path, options={"on_bad_row": "skip", "labels": ["click"]})


def test_another_format_has_no_options_of_the_training(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="more than one column named '3'"):
        opened(tmp_path, format="tsv")


def asked(tmp_path: Path, trained: str, given: Any, text: str, **train: Any) -> StreamedSource:
    """The source of a file (or several), for a run that was trained on `trained`."""
    (tmp_path / trained).write_text(text)
    for name in given if isinstance(given, list) else [given]:
        (tmp_path / name).write_text(text)
    files = FileData(path=str(tmp_path / trained), **train)
    settings = JobSettings(model=CodeRef(path="m:thing"), train=files)
    several = [str(tmp_path / name) for name in given] if isinstance(given, list) else None
    source = open_given(RunDirectory(tmp_path / "run"), settings, several or tmp_path / given)
    assert isinstance(source, StreamedSource)
    return source


def ids(source: StreamedSource) -> list[int]:
    (batch,) = source.read(source.shards()[0], ["features"])
    return [item["id"] for item in batch.to_pylist()[0]["features"]]


@pytest.mark.parametrize("given", ["test.txt", "test.csv", "test"])
def test_a_text_is_in_the_format_of_the_training_whatever_its_name(
    tmp_path: Path, given: str
) -> None:
    assert ids(asked(tmp_path, "train.libsvm", given, "1 3:0.5 17:1\n")) == [2, 16]
    assert ids(asked(tmp_path, "train.log", given, "1,3,17\n", format="dummy")) == [3, 17]


def test_the_format_is_known_by_name_when_the_training_s_files_are_gone(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("1 3:0.5 17:1\n")
    train = FileData(path=str(tmp_path / "gone.libfm"))
    settings = JobSettings(model=CodeRef(path="m:thing"), train=train)
    source = open_given(RunDirectory(tmp_path / "run"), settings, tmp_path / "test.txt")
    assert isinstance(source, StreamedSource)
    assert ids(source) == [3, 17]


def test_several_paths_are_files(tmp_path: Path) -> None:
    source = asked(tmp_path, "train.libsvm", ["a.txt", "b.txt"], "1 3:0.5 17:1\n")
    assert len(source.shards()) == 2


def test_a_tsv_file_may_follow_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("a\tb\n1\t2\n")
    (tmp_path / "train.csv").write_text("a,b\n1,2\n")
    train = FileData(path=str(tmp_path / "train.csv"), options={"types": {"a": "float64"}})
    settings = JobSettings(model=CodeRef(path="m:thing"), train=train)
    source = open_given(RunDirectory(tmp_path / "run"), settings, tmp_path / "test.tsv")
    assert isinstance(source, StreamedSource)
    assert source.schema == pa.schema({"a": pa.float64(), "b": pa.int64()})


def test_parquet_is_parquet_whatever_the_training_read(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a\n1\n")
    train = FileData(path=str(tmp_path / "train.csv"), format="csv")
    settings = JobSettings(model=CodeRef(path="m:thing"), train=train)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "test.parquet")
    source = open_given(RunDirectory(tmp_path / "run"), settings, tmp_path / "test.parquet")
    assert isinstance(source, ParquetSource)
