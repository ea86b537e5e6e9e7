"""Applied samples per second of eight workers with one that is ten times slower, against none."""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from measure import interleave, report
from torch import Tensor, nn

import flambeau as fb
from flambeau.training.callbacks import TrainingView

WORKERS = 8
TIMES_SLOWER = 10
BATCH_ROWS = 32
TIMES = "times.json"


@dataclass(frozen=True)
class Setting:
    """How workers agree; `waits`: all for the slowest of them."""

    strategy: fb.ParameterServer
    waits: bool

    def max_steps(self, rounds: int, slow: bool) -> int:
        """For `rounds` steps of each worker that is not slow, or a tenth if all wait for one."""
        if not self.strategy.lockstep:
            return rounds * WORKERS
        return max(2, rounds // TIMES_SLOWER) if slow and self.waits else rounds


SETTINGS = {
    "one_backup_worker": Setting(fb.ParameterServer(backup_workers=1), waits=False),
    "asynchronous": Setting(fb.ParameterServer(consistency="asynchronous"), waits=False),
    "synchronous": Setting(fb.ParameterServer(), waits=True),
}


class Sleeper(nn.Module):
    """A model whose computation is sleep, so that eight of them fit on any machine."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 1)
        self.seconds = 0.0

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds)
        out: Tensor = self.linear(x)
        return out


class Pace(fb.Callback):
    """Makes the last worker slow; the first one notes when its steps were done."""

    def __init__(self, seconds: float, *, slow: bool) -> None:
        self._seconds, self._slow = seconds, slow
        self._times: list[float] = []

    def on_start(self, view: TrainingView) -> None:
        """Say how long a step takes."""
        assert isinstance(view.model, Sleeper)
        last = view.rank == view.workers - 1
        view.model.seconds = self._seconds * (TIMES_SLOWER if self._slow and last else 1)

    def on_step_end(self, view: TrainingView) -> None:
        """Note the time."""
        self._times.append(time.perf_counter())

    def on_end(self, view: TrainingView) -> None:
        """Save them."""
        if view.first:
            (view.run_dir / TIMES).write_text(json.dumps(self._times))


def main() -> None:
    """Measure each setting with a straggler and without."""
    options = parse_options()
    for name in SETTINGS if options.settings == "all" else options.settings:
        pairs = interleave(
            partial(speed, SETTINGS[name], options, slow=True),
            partial(speed, SETTINGS[name], options, slow=False),
            options.pairs,
        )
        report(f"straggler/{name}", pairs, "samples/s", peer_variant="no straggler")


def speed(setting: Setting, options: argparse.Namespace, *, slow: bool) -> float:
    """Applied samples per second, from the end of the first worker's first step to its last."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory)
        train(setting, options, slow, run)
        times = json.loads((run / TIMES).read_text())
        applied = json.loads((run / "report.json").read_text())["rows"]["applied"]
    # What was applied during the first step is not in the time that is measured.
    counted = applied * (len(times) - 1) / len(times)
    return float(counted / (times[-1] - times[0]))


def train(setting: Setting, options: argparse.Namespace, slow: bool, run: Path) -> None:
    steps = setting.max_steps(options.rounds, slow)
    # More than are needed: at the end of an epoch, asynchronous workers wait for the last task.
    rows = 2 * options.rounds * WORKERS * BATCH_ROWS
    generator = torch.Generator().manual_seed(0)
    fb.fit(
        Sleeper,
        train=(torch.randn(rows, 8, generator=generator), torch.randn(rows, 1)),
        loss="mse",
        optimizer=fb.optim("sgd", lr=0.01),
        batch_size=BATCH_ROWS,
        max_steps=steps,
        strategy=setting.strategy,
        cluster=fb.Local(WORKERS),
        checkpoints=fb.Checkpoints(every_epochs=None),
        evaluation={"every_epochs": None},
        observe={"progress": "none"},
        callbacks=[Pace(options.seconds, slow=slow)],
        run_dir=run,
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", default="all", choices=[*SETTINGS, "all"])
    parser.add_argument("--seconds", type=float, default=0.1, help="of a step that is not slow")
    parser.add_argument("--rounds", type=int, default=200, help="steps of each worker")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.pairs = 20, 2
    return options


if __name__ == "__main__":
    main()
