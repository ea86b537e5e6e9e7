"""`fb.Ray` on a running Ray of this machine: its start, its speed, and how soon it recovers.

`start`: seconds from the command to the first step, against `fb.Local`. `speed`: samples/s after
that. `recovery`: seconds from a killed actor to the next step, for each strategy.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from measure import tell
from turns import HERE
from workloads import WORKERS, WORKLOADS

import flambeau as fb
from clusters import WORKLOAD, compare_speed, compare_start, train

sys.path.insert(0, str(HERE.parent / "tests" / "clusters"))
import ray_nodes  # a real Ray on loopback addresses

STRATEGIES = {
    "all_reduce": fb.AllReduce(),
    "synchronous": fb.ParameterServer(consistency="synchronous"),
    "bounded": fb.ParameterServer(consistency="bounded"),
    "asynchronous": fb.ParameterServer(consistency="asynchronous"),
}


def main() -> None:
    """Measure each part on the same Ray."""
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    parts = {"start": start, "speed": speed, "recovery": recovery}
    with ray_nodes.running(1) as nodes:
        os.environ.update(nodes.environment)
        for name, measure in parts.items():
            if name in options.parts or "all" in options.parts:
                with tempfile.TemporaryDirectory() as folder:
                    measure(Path(folder), options.pairs)


def start(folder: Path, pairs: int) -> None:
    """The start on a running Ray."""
    command = [*train(folder), "~cluster", f"cluster.ray.workers={WORKERS}"]
    compare_start("ray/start", command, folder, pairs)


def speed(folder: Path, pairs: int) -> None:
    """The speed on a running Ray."""
    compare_speed("ray/speed", ["env", "CLUSTER=ray"], folder, pairs)


def recovery(folder: Path, pairs: int) -> None:
    """Kill the actor of a worker in the middle of a training, and look when steps go on."""
    workload = WORKLOADS[WORKLOAD]
    for name, strategy in STRATEGIES.items():
        run = folder / name
        killer = Killer(run)
        killer.start()
        fb.fit(
            workload.build,
            train=workload.data(),
            loss="cross_entropy",
            batch_size=workload.batch_size,
            epochs=1000,
            max_steps=4000,
            strategy=strategy,
            checkpoints={"every_steps": 200},
            recovery={"max_restarts": 3},
            observe={"progress": "none", "every_seconds": 0.2},
            cluster=fb.Ray(WORKERS),
            run_dir=run,
        )
        killer.join()
        tell(f"ray/recovery/{name}", seconds=killer.seconds_to_next_step(), unit="s")


class Killer(threading.Thread):
    """Kills one of the actors after some progress."""

    def __init__(self, run: Path) -> None:
        super().__init__(daemon=True)
        self._run = run
        self._killed = 0.0

    def run(self) -> None:
        """Wait for steps, then kill."""
        while not any(step >= 500 for _, step in self._progress()):
            time.sleep(0.05)
        actors = [
            process
            for process in psutil.process_iter(["cmdline"])
            if (process.info["cmdline"] or [""])[0].startswith("ray::AgentActor")
        ]
        self._killed = time.time()
        actors[-1].kill()

    def seconds_to_next_step(self) -> float:
        """From the kill to the next progress that is reported."""
        return min(at for at, _ in self._progress() if at > self._killed) - self._killed

    def _progress(self) -> list[tuple[float, int]]:
        path = self._run / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return [(e["time"], e.get("step", 0)) for e in events if e["kind"] == "progress"]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    choices = ["start", "speed", "recovery", "all"]
    parser.add_argument("parts", nargs="*", default=["all"], choices=choices)
    parser.add_argument("--pairs", type=int, default=6)
    return parser.parse_args()


if __name__ == "__main__":
    main()
