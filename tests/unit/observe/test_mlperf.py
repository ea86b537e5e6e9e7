import json
from pathlib import Path
from typing import Any

from flambeau.observe import Event, MLPerfLog

JOB_START = Event("job_start", 10.0, {"global_batch": 128, "resumed_step": 0})
FINISHED = Event("job_end", 30.0, {"status": "finished", "step": 9})


def evaluation(time: float, step: int, **metrics: float) -> Event:
    return Event("evaluation", time, {"step": step, "epoch": 1, "metrics": metrics, "rows": 1})


def records(tmp_path: Path, *events: Event) -> list[dict[str, Any]]:
    log = MLPerfLog(tmp_path / "mlperf.log")
    for event in events:
        log.observe(event)
    log.close()
    lines = (tmp_path / "mlperf.log").read_text().splitlines()
    assert all(line.startswith(":::MLLOG {") for line in lines)
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def keys(found: list[dict[str, Any]]) -> list[str]:
    return [record["key"] for record in found]


def test_a_record_has_the_six_members_of_mlperf(tmp_path: Path) -> None:
    epoch = Event("epoch_start", 1.5, {"epoch": 2})
    assert records(tmp_path, epoch) == [
        {
            "namespace": "",
            "time_ms": 1500,
            "event_type": "INTERVAL_START",
            "key": "epoch_start",
            "value": None,
            "metadata": {"epoch_num": 2},
        }
    ]


def test_the_run_with_its_batch_size_is_written(tmp_path: Path) -> None:
    found = records(tmp_path, JOB_START)
    assert keys(found) == ["run_start", "global_batch_size", "block_start"]
    assert found[1]["value"] == 128
    assert found[1]["event_type"] == "POINT_IN_TIME"


def test_the_rows_of_an_epoch_are_written_when_known(tmp_path: Path) -> None:
    start = Event("job_start", 0.0, {**JOB_START.fields, "train_rows": 4096})
    by_key = {record["key"]: record["value"] for record in records(tmp_path, start)}
    assert by_key["train_samples"] == 4096


def test_blocks_reach_from_evaluation_to_evaluation(tmp_path: Path) -> None:
    found = records(tmp_path, JOB_START, evaluation(20.0, 5, auc=0.5), FINISHED)
    blocks = [record for record in found if record["key"].startswith("block")]
    assert keys(blocks) == ["block_start", "block_stop", "block_start", "block_stop"]
    assert [block["time_ms"] for block in blocks] == [10_000, 20_000, 20_000, 30_000]


def test_an_evaluation_is_an_interval_around_its_accuracy(tmp_path: Path) -> None:
    found = records(tmp_path, evaluation(20.0, 5, loss=1.0, auc=0.75, accuracy=0.5))
    assert keys(found)[:3] == ["eval_start", "eval_accuracy", "eval_stop"]
    assert found[1]["value"] == 0.75
    assert found[1]["metadata"] == {"epoch_num": 1, "step_num": 5}


def test_an_evaluation_begins_as_many_seconds_earlier_as_it_took(tmp_path: Path) -> None:
    event = evaluation(20.0, 5)
    found = records(tmp_path, JOB_START, Event("evaluation", 20.0, {**event.fields, "seconds": 3}))
    times = {record["key"]: record["time_ms"] for record in found[:-1]}
    assert (times["block_stop"], times["eval_start"], times["eval_stop"]) == (17000, 17000, 20000)


def test_without_accuracy_or_auc_there_is_no_eval_accuracy(tmp_path: Path) -> None:
    assert "eval_accuracy" not in keys(records(tmp_path, evaluation(20.0, 5, loss=1.0)))


def test_a_finished_run_is_a_success(tmp_path: Path) -> None:
    stop = records(tmp_path, JOB_START, FINISHED)[-1]
    assert (stop["key"], stop["metadata"]) == ("run_stop", {"status": "success"})


def test_a_failed_run_is_aborted(tmp_path: Path) -> None:
    failed = Event("job_end", 30.0, {"status": "failed", "step": 9})
    assert records(tmp_path, JOB_START, failed)[-1]["metadata"] == {"status": "aborted"}
