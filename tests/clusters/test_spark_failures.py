"""What happens on Spark when something ends before its time."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from test_spark_cluster import COMMON, Net, quadrants

import flambeau as fb
from flambeau.errors import WorkerLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executors() -> list[psutil.Process]:
    mark = "CoarseGrainedExecutorBackend"
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if any(mark in part for part in process.cmdline())
    ]


class Slow(fb.Callback):
    """Takes its time, and leaves a sign that it is under way."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def on_step_end(self, view: Any) -> None:
        time.sleep(0.02)
        if view.step == 20:
            (self._sign / str(view.rank)).write_text(str(os.getpid()))


def disturb(sign: Path, act: Callable[[int], None]) -> threading.Thread:
    """Act once when the worker of rank 1 is in the midst of its work."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while not (sign / "1").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        act(int((sign / "1").read_text()))

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def fit(
    local_cluster: "SparkSession", tmp_path: Path, act: Callable[[int], None], **more: Any
) -> Any:
    sign = tmp_path / "sign"
    sign.mkdir()
    thread = disturb(sign, act)
    try:
        return fb.fit(
            Net,
            train=quadrants(local_cluster),
            epochs=15,
            callbacks=[Slow(sign)],
            cluster=fb.Spark(2, session=local_cluster),
            run_dir=tmp_path / "run",
            **{**COMMON, **more},
        )
    finally:
        thread.join()


def test_a_killed_worker_is_started_again_by_its_agent(
    local_cluster: "SparkSession", tmp_path: Path
) -> None:
    result = fit(
        local_cluster,
        tmp_path,
        lambda worker: os.kill(worker, signal.SIGKILL),
        recovery={"max_restarts": 1},
    )
    rows = result.report["rows"]
    assert result.report["restarts"] == 1
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"]
    assert rows["applied"] == 15 * 400
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["kind"] == "spooled" for line in lines) == 1  # one stage did it all


def test_a_killed_executor_costs_part_of_an_epoch(
    local_cluster: "SparkSession", tmp_path: Path
) -> None:
    result = fit(
        local_cluster,
        tmp_path,
        lambda _: executors()[0].kill(),
        recovery={"max_restarts": 1},
        checkpoints={"every_steps": 10},
    )
    rows = result.report["rows"]
    assert result.report["restarts"] == 1
    assert rows["applied"] == 15 * 400
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"]


def test_a_cancelled_stage_ends_the_job(local_cluster: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(WorkerLostError, match="an agent ended before its time"):
        fit(local_cluster, tmp_path, lambda _: local_cluster.interruptAll())
