"""Speed and rows of a job in its report, from what its workers counted."""

from pathlib import Path
from typing import Any

import pytest

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.driver.conclusion import _write_page
from flambeau.driver.observers import Memory
from flambeau.driver.outcome import Outcome
from flambeau.driver.result import make_report
from flambeau.observe import Event, EventLog, read_events

SETTINGS = JobSettings(model=CodeRef(path="m:thing"), train=FileData(path="x"), batch_size=4)


def free_outcome(updates_lost: int, **rows: int) -> Outcome:
    """Asynchronous workers that made 20 updates, as far as two of them know what was lost."""
    clients = [{"client": {"updates_lost": lost}} for lost in (updates_lost, 0)]
    counts = {"read": 160, "applied": 160, "dropped": 0, "repeated": 0, **rows}
    outcome = Outcome(dict(enumerate(clients)), servers={0: {}}, rows=counts)
    outcome.coordinator_summary = {"step": 20}
    return outcome


def free_rows(outcome: Outcome, memory: Memory | None = None) -> dict[str, int]:
    rows: dict[str, int] = make_report(outcome, memory or Memory(), SETTINGS, 0.0)["rows"]
    rows.pop("skipped")
    return rows


def test_rows_whose_updates_were_lost_with_a_server_are_not_applied() -> None:
    rows = free_rows(free_outcome(3))
    assert rows == {"read": 160, "applied": 136, "dropped": 0, "repeated": 0, "lost": 24}


def test_rows_are_lost_also_when_no_worker_is_left_that_knows_of_their_updates() -> None:
    outcome = free_outcome(0)
    outcome.coordinator_summary["updates_lost"] = 5
    rows = free_rows(outcome)
    assert (rows["applied"], rows["lost"]) == (120, 40)
    assert make_report(outcome, Memory(), SETTINGS, 0.0)["updates_lost"] == 5


def test_updates_that_workers_and_the_coordinator_know_of_are_lost_once() -> None:
    outcome = free_outcome(3)
    outcome.coordinator_summary["updates_lost"] = 2
    assert free_rows(outcome)["lost"] == 24


def test_without_lost_updates_no_rows_are_lost() -> None:
    assert "lost" not in free_rows(free_outcome(0))


def test_more_rows_than_were_applied_cannot_be_lost() -> None:
    rows = free_rows(free_outcome(50, applied=120, dropped=40))
    assert (rows["applied"], rows["lost"]) == (0, 120)


def events(*rows: tuple[str, int]) -> list[Event]:
    names = {"progress": "rows", "job_start": "resumed_rows"}
    return [
        Event(kind, 0.0, {"step": 1, "resumed_step": 1, names[kind]: count}) for kind, count in rows
    ]


def logged(path: Path, *rows: tuple[str, int]) -> RunDirectory:
    run = RunDirectory(path)
    log = EventLog(run.events)
    for event in events(*rows):
        log.observe(event)
    log.close()
    return run


def test_rows_after_the_last_checkpoint_of_a_killed_driver_are_repeated(tmp_path: Path) -> None:
    run = logged(tmp_path, ("job_start", 0), ("progress", 64), ("progress", 96))
    memory = Memory()
    assert memory.recall(run) is None
    for event in events(("job_start", 64), ("progress", 160)):
        memory.observe(event)
    rows = free_rows(free_outcome(0), memory)
    assert (rows["read"], rows["applied"], rows["repeated"]) == (192, 160, 32)
    lockstep = make_report(Outcome({0: {"rows": 160}}), memory, SETTINGS, 0.0)["rows"]
    assert (lockstep["read"], lockstep["applied"], lockstep["repeated"]) == (192, 160, 32)


def test_rows_of_all_earlier_parts_count(tmp_path: Path) -> None:
    parts = ("job_start", 0), ("progress", 40), ("job_start", 32), ("progress", 90)
    memory = Memory()
    memory.recall(logged(tmp_path, *parts))
    memory.observe(events(("job_start", 80))[0])
    assert memory.rows_lost == 8 + 10


def test_a_damaged_log_is_said_and_does_not_keep_a_run_from_going_on(tmp_path: Path) -> None:
    run = logged(tmp_path, ("progress", 64))
    run.events.write_bytes(run.events.read_bytes() + b"not an event\n")
    text = Memory().recall(run)
    assert text is not None
    assert "line 2 is not an event" in text


def test_a_job_without_a_summary_has_come_as_far_as_its_last_progress() -> None:
    memory = Memory()
    for event in events(("job_start", 0), ("progress", 96), ("job_start", 64), ("progress", 80)):
        memory.observe(event)
    found = make_report(Outcome(), memory, SETTINGS, 0.0)
    counts = {"read": 112, "applied": 80, "dropped": 0, "repeated": 32, "skipped": 0}
    assert (found["rows"], found["step"]) == (counts, 1)


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


def test_the_steps_of_each_worker_are_told_apart() -> None:
    parts = [{"data": 0.1, "dense": 0.3}, {"data": 0.5, "dense": 0.3}]
    summaries = [{"own_steps": 10 * k, "seconds_per_step": each} for k, each in enumerate(parts, 1)]
    found = report(*summaries)["by_worker"]
    assert found["0"] == {"steps": 10, "seconds_per_step": parts[0]}
    assert found["1"] == {"steps": 20, "seconds_per_step": parts[1]}


def test_the_report_names_versions() -> None:
    assert report()["versions"].keys() == {"flambeau", "python", "torch"}


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    _write_page(RunDirectory(tmp_path / "gone"), log)
    log.close()
    (event,) = read_events(tmp_path / "events.jsonl")
    assert event.kind == "warning"
    assert "report.html could not be written: " in event.fields["text"]
