"""Executors that are processes of their own, and what happens when something ends too early."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from test_spark_cluster import COMMON, Net, events, quadrants
from test_spark_environment import barrier_stage

import flambeau as fb
from flambeau.compat.angel.making import make
from flambeau.errors import WorkerLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = Path(__file__).parents[2] / "examples" / "spark" / "driver.py"


def test_two_executors_work_outside_the_package(
    local_cluster: "SparkSession", spark_folder: Path
) -> None:
    assert len({parent for _, parent in barrier_stage(local_cluster)}) == 2
    work = spark_folder / "home" / "work"
    assert len(list(work.glob(f"{local_cluster.sparkContext.applicationId}/*"))) == 2


def executors(session: "SparkSession") -> list[psutil.Process]:
    """The processes of its executors; those that have just ended do not matter."""
    marks = {"org.apache.spark.executor.CoarseGrainedExecutorBackend"}
    marks.add(session.sparkContext.applicationId)
    processes = psutil.process_iter(["cmdline"])
    return [process for process in processes if marks <= set(process.info["cmdline"] or ())]


class Slow(fb.Callback):
    """Takes its time, and leaves a sign that it is under way."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def on_step_end(self, view: Any) -> None:
        time.sleep(0.02)
        if view.step == 20:
            written = self._sign / f"{view.rank}.part"
            written.write_text(str(os.getpid()))
            written.rename(self._sign / str(view.rank))


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
    sign.mkdir(exist_ok=True)
    thread = disturb(sign, act)
    try:
        return fb.fit(
            Net,
            train=quadrants(local_cluster),
            callbacks=[Slow(sign)],
            run_dir=tmp_path / "run",
            **{"epochs": 15, **COMMON, "cluster": fb.Spark(2, session=local_cluster), **more},
        )
    finally:
        thread.join()


@pytest.mark.parametrize("shared_files", [True, False])
def test_a_killed_worker_is_started_again_by_its_agent(
    local_cluster: "SparkSession", tmp_path: Path, shared_files: bool
) -> None:
    result = fit(
        local_cluster,
        tmp_path,
        lambda worker: os.kill(worker, signal.SIGKILL),
        cluster=fb.Spark(2, session=local_cluster, shared_files=shared_files),
        checkpoints={"every_steps": 10},
        recovery={"max_restarts": 1},
    )
    rows = result.report["rows"]
    assert result.report["restarts"] == 1
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"]
    assert rows["applied"] == 15 * 400
    (lost,) = events(tmp_path / "run", "worker_lost")
    assert "executor" not in lost  # one stage did it all


def test_a_killed_executor_costs_part_of_an_epoch(
    local_cluster: "SparkSession", tmp_path: Path
) -> None:
    result = fit(
        local_cluster,
        tmp_path,
        lambda _: executors(local_cluster)[0].kill(),
        recovery={"max_restarts": 1},
        checkpoints={"every_steps": 10},
    )
    rows = result.report["rows"]
    assert result.report["restarts"] == 1
    assert rows["applied"] == 15 * 400
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"]
    (lost,) = (event for event in events(tmp_path / "run", "worker_lost") if "executor" in event)
    assert lost["rank"] in (0, 1)
    assert lost["host"] == "127.0.0.1"
    assert f"executor {lost['executor']} " in lost["reason"]


def test_a_cancelled_stage_ends_the_job(local_cluster: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(WorkerLostError, match="an agent ended before its time"):
        # It takes Spark some seconds to end tasks.
        fit(local_cluster, tmp_path, lambda _: local_cluster.interruptAll(), epochs=1_000)


def test_ctrl_c_stops_after_the_step_and_the_same_call_goes_on(
    local_cluster: "SparkSession", tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step \d+"):
        fit(local_cluster, tmp_path, lambda _: os.kill(os.getpid(), signal.SIGINT))
    result = fit(local_cluster, tmp_path, lambda _: None)
    assert result.report["rows"]["applied"] == 15 * 400


def write_census(path: Path, rows: int) -> None:
    """Thirteen ids in every row; the label follows from weights of the ids."""
    chosen, weights = np.random.default_rng(1), np.random.default_rng(0).normal(size=130)
    ids = chosen.integers(0, 10, (rows, 13)) + 10 * np.arange(13)
    labels = weights[ids].sum(1) + chosen.logistic(size=rows) > 0
    lines = (" ".join(f"{number + 1}:1" for number in row) for row in ids)
    path.write_text("".join(f"{int(y)} {x}\n" for y, x in zip(labels, lines, strict=True)))


def test_a_job_of_angel_by_spark_submit(spark_folder: Path, tmp_path: Path) -> None:
    write_census(tmp_path / "census", 3000)
    words = "deepfm --input_dim 130 --n_fields 13 --embedding_dim 4 --fc_dims 8 1 -o"
    make([*words.split(), str(tmp_path / "deepfm.pt")])
    job = "input:census batchSize:64 torchModelPath:deepfm.pt numEpoch:3 modulePath:out"
    instances = [f"spark.{kind}.instances=2" for kind in ("executor", "ps")]
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local-cluster[2,1,1024]"),
            *(word for setting in instances for word in ("--conf", setting)),
            *(str(DRIVER), "angel", *job.split(), "cluster:spark"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    aucs = [
        float(line.split("validate auc ")[1].split()[0])
        for line in done.stdout.splitlines()
        if "validate auc" in line
    ]
    assert len(aucs) == 3
    assert aucs[-1] > 0.75, done.stdout
    assert (tmp_path / "out").is_file()
    (report,) = (json.loads(file.read_text()) for file in tmp_path.glob("runs/*/report.json"))
    assert (report["workers"], len(report["servers"])) == (2, 2)
