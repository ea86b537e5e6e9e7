"""Bad rows that were left out are told of: in the report, and where there is none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.data.sources.text.dummy import open_dummy
from flambeau.driver.observers import Memory
from flambeau.driver.outcome import Outcome
from flambeau.driver.result import make_report
from flambeau.observe import Event
from flambeau.runs import open_data
from flambeau.runs.trained_run import open_given

SETTINGS = JobSettings(model=CodeRef(path="m:thing"), train=FileData(path="x"), batch_size=4)


def started(**fields: Any) -> Event:
    return Event("job_start", 0.0, {"resumed_step": 0, **fields})


def skipped_in_report(*events: Event) -> int:
    memory = Memory()
    for event in events:
        memory.observe(event)
    report = make_report(Outcome(), memory, SETTINGS, 0.0)
    return int(report["rows"]["skipped"])


def test_the_report_counts_them_once_though_workers_start_again() -> None:
    assert skipped_in_report(started(skipped_rows=3), started(skipped_rows=3)) == 3


def test_the_report_has_none_of_other_data() -> None:
    assert skipped_in_report(started()) == 0


def test_a_source_finds_them_when_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1,1\nx\n")
    source = open_dummy(str(tmp_path / "a"), on_bad_row="skip")
    assert open_data.skipped_rows(source) == 1
    assert open_data.skipped_rows(open_data.array_source(np.ones(2))) == 0


def test_rows_missing_from_predictions_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1,1\nx\n1,2\n")
    data = FileData(path=str(tmp_path / "a"), format="dummy", options={"on_bad_row": "skip"})
    with pytest.warns(UserWarning, match="1 bad row of the data was left out"):
        open_given(RunDirectory(tmp_path / "run"), SETTINGS, data)
