"""A training on `fb.Spark(2)` or `fb.Local(2)`: how long it takes, or how much memory.

spark_cluster.py seconds local|spark DATA ROWS STEPS
spark_cluster.py memory DATA SPARK_MEMORY
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
from spark_workload import BATCH_ROWS, FEATURES, WORKERS, answer, seconds, session

import flambeau as fb
from flambeau.models import MLP
from flambeau.training.callbacks import TrainingView

PEAK, ANONYMOUS = "VmHWM", "RssAnon"
LOOK_EVERY_STEPS = 20


class Memory(fb.Callback):
    """Notes the memory of this worker, and of the Python processes above it on an executor."""

    def __init__(self) -> None:
        self._anonymous = 0

    def on_step_end(self, view: TrainingView) -> None:
        """Look how much there is now; Linux keeps the peak only for what includes mapped files."""
        if view.step % LOOK_EVERY_STEPS == 0:
            self._anonymous = max(self._anonymous, status("self", ANONYMOUS))

    def on_end(self, view: TrainingView) -> None:
        """Save it."""
        agents = [each.pid for each in psutil.Process().parents() if "python" in each.name()]
        # The last of them is the driver.
        found = {
            "worker_mb": status("self", PEAK),
            "worker_anonymous_mb": self._anonymous,
            "agent_mb": max((status(pid, PEAK) for pid in agents[:-1]), default=0),
        }
        (view.run_dir / f"memory-{view.rank}.json").write_text(json.dumps(found))


def status(process: int | str, field: str) -> int:
    """A size of /proc/PID/status in MB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) >> 10
    raise ValueError(f"no {field} in the status of process {process}")


def train(data: Any, cluster: fb.Local | fb.Spark, run: str, **more: Any) -> fb.Result:
    """Without what is no part of the comparison."""
    return fb.fit(
        MLP(FEATURES),
        train=data,
        inputs={"image": "features"},
        label="label",
        loss="cross_entropy",
        optimizer=fb.optim("adam", lr=0.001),
        batch_size=BATCH_ROWS,
        cluster=cluster,
        checkpoints=fb.Checkpoints(every_epochs=None),
        evaluation={"every_epochs": None},
        observe={"progress": "none", "tensorboard": False},
        run_dir=run,
        **more,
    )


def time_it(kind: str, data: str, rows: str, steps: str) -> None:
    """How long the session took to start, and `fit` after that."""
    epochs = -(-int(steps) * BATCH_ROWS * WORKERS // int(rows)) + 1
    length = {"max_steps": int(steps), "epochs": epochs}
    with tempfile.TemporaryDirectory() as run:
        if kind == "local":
            taken, _ = seconds(lambda: train(data, fb.Local(WORKERS), run, **length))
            answer(seconds=taken)
            return
        started, spark = seconds(session)
        frame = spark.read.parquet(data)
        taken, _ = seconds(lambda: train(frame, fb.Spark(WORKERS), run, **length))
        answer(seconds=taken, session_seconds=started)


def weigh(data: str, memory: str) -> None:
    """The most that any worker and any agent took in one epoch."""
    frame = session(memory).read.parquet(data)
    with tempfile.TemporaryDirectory() as run:
        train(frame, fb.Spark(WORKERS), run, epochs=1, callbacks=[Memory()])
        found = [json.loads(file.read_text()) for file in Path(run).glob("memory-*.json")]
        events = map(json.loads, (Path(run) / "events.jsonl").read_text().splitlines())
        spooled = next(event for event in events if event["kind"] == "spooled")
    most = {name: max(each[name] for each in found) for name in found[0]}
    answer(**most, workers=len(found), spooled_mb=spooled["bytes"] >> 20)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"seconds": time_it, "memory": weigh}[command](*arguments)
