import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from flambeau.errors import MissingDependencyError
from flambeau.observe import Event, TensorBoardScalars


def progress(step: int, **fields: Any) -> Event:
    numbers = {
        "loss": 0.5,
        "lr": 0.25,
        "rows_per_second": 1000.0,
        "data_seconds": 0.125,
        "compute_seconds": 2.0,
        "communication_seconds": 4.0,
    }
    return Event("progress", 100.0 + step, {"step": step, "epoch": 0, **numbers, **fields})


def read(directory: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return {
        tag: [(point.step, point.value) for point in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def write(directory: Path, *events: Event) -> dict[str, list[tuple[int, float]]]:
    scalars = TensorBoardScalars(directory)
    for event in events:
        scalars.observe(event)
    scalars.close()
    return read(directory)


def test_progress_becomes_train_and_time_scalars(tmp_path: Path) -> None:
    assert write(tmp_path, progress(3)) == {
        "train/loss": [(3, 0.5)],
        "train/lr": [(3, 0.25)],
        "train/rows_per_second": [(3, 1000.0)],
        "time/data": [(3, 0.125)],
        "time/compute": [(3, 2.0)],
        "time/communication": [(3, 4.0)],
    }


def test_metrics_of_an_evaluation_are_under_valid(tmp_path: Path) -> None:
    event = Event("evaluation", 1.0, {"step": 5, "epoch": 0, "metrics": {"auc": 0.75}, "rows": 9})
    assert write(tmp_path, event) == {"valid/auc": [(5, 0.75)]}


def test_the_users_scalars_keep_their_tags(tmp_path: Path) -> None:
    event = Event("scalars", 1.0, {"step": 2, "values": {"gate/temperature": 1.5}})
    assert write(tmp_path, event) == {"gate/temperature": [(2, 1.5)]}


def test_a_number_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    assert "train/lr" not in write(tmp_path, progress(1, lr=None))


def test_an_evaluation_is_on_disk_before_close(tmp_path: Path) -> None:
    scalars = TensorBoardScalars(tmp_path)
    metrics = {"accuracy": 0.5}
    scalars.observe(Event("evaluation", 1.0, {"step": 1, "epoch": 0, "metrics": metrics}))
    assert read(tmp_path) == {"valid/accuracy": [(1, 0.5)]}
    scalars.close()


def test_the_time_of_a_point_is_that_of_its_event(tmp_path: Path) -> None:
    write(tmp_path, progress(3))
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert accumulator.Scalars("train/loss")[0].wall_time == 103.0


def test_after_a_restart_steps_trained_again_replace_the_old_ones(tmp_path: Path) -> None:
    restart = Event("restart", 4.0, {"generation": 2, "reason": "worker 1 lost"})
    again = progress(2, loss=0.75)
    points = write(tmp_path, progress(1), progress(2), progress(3), restart, again)
    assert points["train/loss"] == [(1, 0.5), (2, 0.75)]


def test_when_one_process_starts_again_no_step_is_trained_again(tmp_path: Path) -> None:
    fields = {"rank": 1, "role": "worker", "generation": 0, "reason": "lost"}
    restart = Event("restart", 4.0, fields)
    points = write(tmp_path, progress(3), restart, progress(3))
    assert len(points["train/loss"]) == 2


def test_after_a_resume_steps_trained_again_replace_the_old_ones(tmp_path: Path) -> None:
    resumed = Event("job_start", 4.0, {"resumed_step": 1})
    points = write(tmp_path, progress(1), progress(2), progress(3), resumed, progress(2, loss=0.75))
    assert points["train/loss"] == [(1, 0.5), (2, 0.75)]


def server(time: float, shard: int = 0, shards: int = 1, **fields: Any) -> Event:
    known = {"shard": shard, "shards": shards, "staleness": {}, "tables": {}}
    return Event("server", time, {**known, **fields})


def test_what_servers_tell_is_at_the_step_of_the_progress_before(tmp_path: Path) -> None:
    points = write(
        tmp_path,
        server(0.0, pulls=10, pushes=4),
        progress(3),
        server(2.0, pulls=20, pushes=4, staleness={"1": 1, "2": 1}),
    )
    assert points["server/0/pulls_per_second"] == [(3, 5.0)]
    assert points["server/0/pushes_per_second"] == [(3, 0.0)]
    assert points["server/0/staleness_mean"] == [(3, 1.5)]


def test_a_resumed_run_begins_at_its_step(tmp_path: Path) -> None:
    resumed = Event("job_start", 0.0, {"resumed_step": 7})
    points = write(tmp_path, resumed, server(0.0, staleness={"1": 1}))
    assert points["server/0/staleness_mean"] == [(7, 1.0)]


def test_tables_are_written_once_for_all_shards(tmp_path: Path) -> None:
    table = {"rows": 10, "bytes": 640, "admitted": 12, "rejected": 3, "evicted": 2}
    told = [server(0.0, shard, 2, tables={"item": table}) for shard in (0, 1, 0)]
    points = write(tmp_path, *told)
    assert points == {
        "table/item/rows": [(0, 20.0)],
        "table/item/bytes": [(0, 1280.0)],
        "table/item/admitted": [(0, 24.0)],
        "table/item/rejected": [(0, 6.0)],
        "table/item/evicted": [(0, 4.0)],
    }


def test_what_clients_tell_is_under_their_rank(tmp_path: Path) -> None:
    fields = {"rank": 1, "pulls": 2, "pull_seconds_p50": 0.25, "ids_seen": 6, "ids_distinct": 4}
    assert write(tmp_path, progress(3), Event("client", 5.0, fields)).keys() >= {
        "client/1/pull_seconds_p50",
        "client/1/dedup",
    }
    assert read(tmp_path)["client/1/dedup"] == [(3, 1.5)]


def test_an_event_it_does_not_know_is_ignored(tmp_path: Path) -> None:
    assert write(tmp_path, Event("warning", 0.0, {"text": "slow"})) == {}


def test_without_tensorboard_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "tensorboard.summary.writer.event_file_writer"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"pip install tensorboard"):
        TensorBoardScalars(tmp_path)
