"""Seconds from `flambeau train` to the end of the first step, against a plain torch script."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measure import interleave, report

SIDES = Path(__file__).parent / "sides"
JOB = """\
model: first_step:build
train: first_step:data
loss: cross_entropy
optimizer: {name: sgd, lr: 0.01}
batch_size: 128
max_steps: 4
cluster: {local: {workers: 2}}
observe: {progress: none}
"""


def main() -> None:
    """Measure whole runs, one after the other."""
    options = parse_options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(JOB)
        (folder / "first_step.py").write_text((SIDES / "first_step.py").read_text())
        train(folder)
        script(folder)  # both sides' files are in memory from now on
        pairs = interleave(lambda: train(folder), lambda: script(folder), options.pairs)
    both = zip(pairs.ours, pairs.peer, strict=True)
    more = statistics.median(ours - peer for ours, peer in both)
    report("startup", pairs, "s", higher_is_better=False, seconds_more=round(more, 2))


def train(folder: Path) -> float:
    """Seconds from the command to the end of the first step."""
    command = [sys.executable, "-m", "flambeau", "train", str(folder / "job.yaml")]
    return first_step_under(command, folder)


def first_step_under(command: Sequence[str], folder: Path) -> float:
    """Seconds from a command that trains to the first progress, reported after one step."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        started = time.time()
        subprocess.run([*command, "--run-dir", run], check=True, stdout=subprocess.DEVNULL)
        return first_progress(Path(run)) - started


def first_progress(run: Path) -> float:
    """When the first step was done."""
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return next(float(event["time"]) for event in events if event["kind"] == "progress")


def script(folder: Path) -> float:
    """Seconds from starting Python to the end of its first step."""
    done = folder / "done"
    started = time.time()
    subprocess.run([sys.executable, str(SIDES / "first_step.py"), str(done)], check=True)
    return float(done.read_text()) - started


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
