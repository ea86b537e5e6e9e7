"""Small models and data for tests that start processes; importable by the workers."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from flambeau.training.callbacks import Callback, TrainingView

QUIET = {"progress": "none"}


class Net(nn.Module):
    """Two layers; in float64 when asked, for comparisons to the last digits."""

    def __init__(self, inputs: int = 6, classes: int = 3, double: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, classes))
        if double:
            self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class DropoutNet(Net):
    """As `Net`, with dropout: resuming must restore the random generators."""

    def __init__(self) -> None:
        super().__init__()
        self.layers.insert(2, nn.Dropout(0.3))


def make_data(rows: int = 101, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    y = (x @ rng.normal(size=(6, 3))).argmax(axis=1)
    return x, y


class Strike(Callback):
    """Does something violent to one worker after a step, once per run directory."""

    def __init__(self, rank: int, step: int, how: str) -> None:
        self.rank, self.step, self.how = rank, step, how

    def on_step_end(self, view: TrainingView) -> None:
        mark = Path(view.run_dir) / "struck"
        if view.rank != self.rank or view.step != self.step or mark.exists():
            return
        mark.touch()
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.how == "raise":
            raise RuntimeError("struck on purpose")


class Slow(Callback):
    """Makes steps long enough to be interrupted, and says in a file that training has begun."""

    def __init__(self, seconds: float = 0.05, begun_at: int = 3) -> None:
        self.seconds, self.begun_at = seconds, begun_at

    def on_step_end(self, view: TrainingView) -> None:
        time.sleep(self.seconds)
        if view.step == self.begun_at and view.first:
            (Path(view.run_dir) / "begun").touch()


def weights(result: Any) -> dict[str, torch.Tensor]:
    return dict(result.model.state_dict())


def assert_same_weights(left: Any, right: Any, *, exactly: bool = False) -> None:
    ours, theirs = weights(left), weights(right)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if exactly:
            assert torch.equal(tensor, theirs[name]), name
        else:
            torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-12)
