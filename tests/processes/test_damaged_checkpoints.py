"""Runs whose newest checkpoint is damaged, or whose first one is gone when a worker is lost."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from toy import QUIET, SparseNet, make_clicks

import flambeau as fb

STRATEGIES = {
    "all-reduce": (fb.AllReduce(), 1),
    "asynchronous": (fb.ParameterServer(servers=2, consistency="asynchronous"), 2),
}


def train(path: Path, strategy: Any, workers: int = 2, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "loss": "bce",
        "label": "label",
        "optimizer": fb.optim("adam", lr=0.02),
        "table_optimizer": fb.optim("adagrad", lr=0.05),
        "batch_size": 8,
        "checkpoints": {"every_steps": 4},
        "strategy": strategy,
        "cluster": fb.Local(workers),
        "observe": QUIET,
        "run_dir": path,
        **changes,
    }
    return fb.fit(SparseNet(), make_clicks(160), **arguments)


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_damaged_table_in_the_newest_checkpoint_is_passed_over(name: str, tmp_path: Path) -> None:
    strategy, workers = STRATEGIES[name]
    run = tmp_path / "run"
    train(run, strategy, workers)
    *_, before, newest = sorted((run / "checkpoints").iterdir())
    file = next(newest.glob("table-item-*"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    resumed = train(run, strategy, workers, epochs=2)
    assert resumed.report["rows"]["applied"] == 2 * 160
    assert events(run, "job_start")[-1]["resumed_step"] == int(before.name.removeprefix("step-"))
    (warning,) = events(run, "warning")
    assert f"skipped the checkpoint {newest.name}: " in warning["text"]
    assert file.name in warning["text"]


class LoseWorker(fb.Callback):
    """Kills worker 1 once, when the checkpoint that the job was resumed from would be gone."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_step_end(self, view: Any) -> None:
        run = Path(view.run_dir)
        steps = [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")]
        if view.rank == 1 and max(steps) > self.after and not (run / "struck").exists():
            (run / "struck").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_resumed_asynchronous_job_survives_a_lost_worker(tmp_path: Path) -> None:
    run = tmp_path / "run"
    strategy = fb.ParameterServer(servers=1, consistency="asynchronous")
    changes: dict[str, Any] = {"checkpoints": {"every_steps": 2, "keep": 1}}
    first = train(run, strategy, **changes)
    result = train(
        run,
        strategy,
        epochs=5,
        callbacks=[LoseWorker(first.report["step"] + 6)],
        recovery={"max_restarts": 2},
        **changes,
    )
    assert (run / "struck").exists(), "nothing was killed"
    assert result.report["restarts"] == 1
    assert result.report["rows"]["applied"] == 5 * 160
    (lost,) = events(run, "worker_lost")
    assert (lost["rank"], lost["role"]) == (1, "worker")
    assert len(list((run / "checkpoints").iterdir())) == 1, "leased to the end, and no longer"
