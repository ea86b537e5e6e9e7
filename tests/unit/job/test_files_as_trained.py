"""Files that a run is asked about are read as those of its training were."""

from pathlib import Path
from typing import Any

import pytest

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.data.source import Source
from flambeau.errors import DataError
from flambeau.job.using import open_given

TRAIN = {"path": "train.tsv", "format": "criteo", "options": {"labels": ["click", "bought"]}}
ROW = "\t".join(["1", "0", *["3"] * 13, *["68fd1e64"] * 26]) + "\n"


def opened(tmp_path: Path, name: str = "a.tsv", **given: Any) -> Source:
    file = tmp_path / name
    file.write_text(ROW + ROW.replace("3", "x", 1) + ROW)
    train = FileData(**TRAIN)
    settings = JobSettings(model=CodeRef(path="m:thing"), train=train, batch_size=4)
    return open_given(RunDirectory(tmp_path / "run"), settings, FileData(path=str(file), **given))


def test_an_option_comes_to_those_of_the_training(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 bad rows of the data were left out"):
        source = opened(tmp_path, options={"on_bad_row": "skip"})
    assert source.schema.names[:3] == ["click", "bought", "I1"]


def test_the_same_format_may_be_named_and_files_be_called_otherwise(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 bad rows of the data were left out"):
        source = opened(tmp_path, "a.log", format="criteo", options={"on_bad_row": "skip"})
    assert source.schema.names[:3] == ["click", "bought", "I1"]


def test_an_option_takes_the_place_of_the_training_s(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows: 3 bad rows were skipped"):
        opened(tmp_path, options={"on_bad_row": "skip", "labels": ["click"]})


def test_another_format_has_no_options_of_the_training(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="more than one column named '3'"):
        opened(tmp_path, format="tsv")
