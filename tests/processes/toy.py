"""Small models and data for tests that start processes; importable by the workers."""

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path
from flambeau.embeddings import SparseEmbedding, TableSpec
from flambeau.tables.saved.mapped import open_tables
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
        elif self.how == "full disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file")


class StopAt(Callback):
    """Ends the training from one worker's callback."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = rank, step

    def on_step_end(self, view: TrainingView) -> None:
        if view.rank == self.rank and view.step >= self.step:
            view.stop()


class Slow(Callback):
    """Makes steps long enough to be interrupted, and says in a file that training has begun.

    The file is `begun` in the run directory, or in another one.
    """

    def __init__(
        self, seconds: float = 0.05, begun_at: int = 3, folder: Path | None = None
    ) -> None:
        self.seconds, self.begun_at, self.folder = seconds, begun_at, folder

    def on_step_end(self, view: TrainingView) -> None:
        time.sleep(self.seconds)
        if view.step >= self.begun_at and view.first:
            (self.folder or Path(view.run_dir)).joinpath("begun").touch()


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


class SparseNet(nn.Module):
    """Dense layers and two look-ups, in float64: one id per row pooled with others, one alone."""

    def __init__(self, prefetch: bool = False, optimizer: Any = None) -> None:
        super().__init__()
        torch.manual_seed(6)
        item = TableSpec("item", 4, dtype="fp64", optimizer=optimizer)
        user = TableSpec("user", 3, dtype="fp64", optimizer=optimizer)
        self.items = SparseEmbedding(item, "sum", prefetch="items" if prefetch else None)
        self.users = SparseEmbedding(user, prefetch="user" if prefetch else None)
        self.layers = nn.Sequential(nn.Linear(6 + 4 + 3, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def forward(self, x: torch.Tensor, items: torch.Tensor, user: torch.Tensor) -> torch.Tensor:
        whole = torch.cat([x, self.items(items), self.users(user)], dim=1)
        result: torch.Tensor = self.layers(whole)
        return result[:, 0]


def make_clicks(rows: int = 101, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows with dense numbers, three items and a user; ids are any int64."""
    rng = np.random.default_rng(seed)
    known = rng.integers(-(2**62), 2**62, size=40)
    x = rng.normal(size=(rows, 6))
    items = known[rng.zipf(1.5, size=(rows, 3)) % 40]
    user = known[rng.integers(0, 40, size=rows)]
    effect = {int(key): rng.normal() for key in known}
    score = x[:, 0] + np.vectorize(effect.get)(items).sum(axis=1)
    return {"x": x, "items": items, "user": user, "label": (score > 0).astype(np.float64)}


def rows_of(result: Any) -> dict[str, dict[int, np.ndarray]]:
    """All rows of all tables of a run, by table and id."""
    path = checkpoint_path(RunDirectory(result.run_dir), result.report["step"])
    found: dict[str, dict[int, np.ndarray]] = {}
    for name, table in open_tables(path).items():
        chunks = [zip(ids.tolist(), values, strict=True) for ids, values in table.chunks(1000)]
        found[name] = {key: row for chunk in chunks for key, row in chunk}
    return found


def assert_same_tables(left: Any, right: Any, *, exactly: bool = False) -> None:
    ours, theirs = rows_of(left), rows_of(right)
    assert ours.keys() == theirs.keys()
    for name, rows in ours.items():
        assert rows.keys() == theirs[name].keys(), name
        assert rows, f"table {name} is empty"
        for key, row in rows.items():
            tolerance = 0 if exactly else 1e-12
            np.testing.assert_allclose(row, theirs[name][key], rtol=0, atol=tolerance)


class Spoiler(SparseNet):
    """Gives a loss that is not finite for rows whose first number is huge."""

    def forward(self, x: torch.Tensor, items: torch.Tensor, user: torch.Tensor) -> torch.Tensor:
        out = super().forward(x.clamp(max=100.0), items, user)
        return out + torch.where(x[:, 0] > 1e6, torch.nan, 0.0)


class SlowRank(Callback):
    """Makes every step of one worker take longer."""

    def __init__(self, rank: int, seconds: float) -> None:
        self.rank, self.seconds = rank, seconds

    def on_step_end(self, view: TrainingView) -> None:
        if view.rank == self.rank:
            time.sleep(self.seconds)


class WholeNorm(torch.optim.Optimizer):
    """Steps of length `lr`, whatever the gradient: not element-wise."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad / (parameter.grad.norm() + 1e-9)


class TwoSpecs(nn.Module):
    """Two different tables of one name."""

    def __init__(self) -> None:
        super().__init__()
        self.one = SparseEmbedding(TableSpec("item", 4), "sum")
        self.two = SparseEmbedding(TableSpec("item", 2), "sum")
        self.last = nn.Linear(6, 1)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        whole = torch.cat([self.one(items), self.two(items)], dim=1)
        result: torch.Tensor = self.last(whole)
        return result[:, 0]
