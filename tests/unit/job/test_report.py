"""The speed of a job in its report, from what its workers counted."""

from typing import Any

import pytest

from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.job.observers import Memory
from flambeau.job.outcome import Outcome
from flambeau.job.result import make_report

SETTINGS = JobSettings(model=CodeRef(path="m:thing"), train=FileData(path="x"), batch_size=4)


def report(*summaries: dict[str, Any]) -> dict[str, Any]:
    return make_report(Outcome(dict(enumerate(summaries))), Memory(), SETTINGS, 0.0)


def worker(steps: int, data: float, **more: Any) -> dict[str, Any]:
    times = {"data": data, "dense": 2 * data}
    return {"seconds": 10.0, "own_steps": steps, "seconds_per_step": times, **more}


def test_the_seconds_of_a_step_are_the_mean_over_all_workers_steps() -> None:
    found = report(worker(0, 0.0, own_rows=0), worker(1, 4.0, own_rows=4), worker(3, 8.0))
    assert found["seconds_per_step"] == pytest.approx({"data": 7.0, "dense": 14.0})


def test_the_rows_per_second_of_asynchronous_workers_are_added_up() -> None:
    found = report(worker(0, 0.0, own_rows=0), worker(5, 1.0, own_rows=40, seconds=4.0))
    assert found["rows_per_second"] == 10.0
    assert found["rows"]["read"] == 0


def test_workers_that_keep_in_step_know_the_rows_of_all() -> None:
    assert report(*[worker(5, 1.0, rows_per_second=80.0)] * 2)["rows_per_second"] == 80.0


def test_what_only_the_report_needs_is_not_in_it() -> None:
    assert not {"own_rows", "own_steps"} & set(report(worker(5, 1.0, own_rows=1)))
    assert "seconds_per_step" not in report()
