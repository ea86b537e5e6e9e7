"""A small network, rows and callbacks for tests of Ray; importable by the workers."""

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
import torch
from torch import nn

import flambeau.compat.horovod as hvd
from flambeau.training.callbacks import Callback, TrainingView


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class ImageNet(nn.Module):
    """Takes what `images` returns: each image must be that of its number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(4, 2)

    def forward(self, image: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        assert image.shape == (len(number), 1, 2, 2)
        assert torch.equal(image[:, 0, 1, 1].long(), number.long() + 3)
        result: torch.Tensor = self.layer(image.flatten(1) / 1000)
        return result


def images(first: int, count: int) -> dict[str, np.ndarray]:
    """Return images [count, 1, 2, 2], their numbers from `first` on, and a class for each."""
    number = np.arange(first, first + count)
    image = (number[:, None] + np.arange(4)).astype("float32").reshape(-1, 1, 2, 2)
    return {"image": image, "number": number, "y": number % 2}


def rows(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return features [count, 4] and a class of two for each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 4)).astype("float32")
    return x, (x[:, 0] + x[:, 1] > 0).astype("int64")


def uneven_dataset(count: int = 400, shift: float = 0.0) -> "ray.data.Dataset":
    """Return the same rows as a Ray Dataset whose blocks are finished in any order.

    `shift` is added to the first feature.
    """
    x, y = rows(count)
    columns = {name: x[:, number] for number, name in enumerate("abcd")}
    columns["a"] = columns["a"] + np.float32(shift)

    def make(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] % 40 == 0:
            time.sleep(random.random() / 4)
        return {name: values[row["id"]] for name, values in {**columns, "y": y}.items()}

    return ray.data.range(count, override_num_blocks=10).map(make)


class Slow(Callback):
    """Makes steps take their time, and writes to a folder how the training goes.

    `starts` has a line for each start of a worker: its rank and the step that it starts from.
    `begun` is there when `begun_at` steps are done. Some steps later, workers wait for the file
    `until` in the folder, if that is given.
    """

    def __init__(
        self, folder: Path, begun_at: int = 12, seconds: float = 0.05, until: str | None = None
    ) -> None:
        self.folder, self.begun_at, self.seconds = folder, begun_at, seconds
        self.until = None if until is None else folder / until

    def on_start(self, view: TrainingView) -> None:
        with (self.folder / "starts").open("a") as file:
            file.write(f"{view.rank} {view.step}\n")

    def on_step_end(self, view: TrainingView) -> None:
        time.sleep(self.seconds)
        if view.step >= self.begun_at and view.first:
            (self.folder / "begun").touch()
        while self.until is not None and view.step > self.begun_at + 8 and not self.until.exists():
            time.sleep(0.02)


class Numbers(Callback):
    """Writes the numbers of the rows that each worker trains on, to a file of its rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step_end(self, view: TrainingView) -> None:
        assert view.batch is not None
        with (self.folder / f"numbers-{view.rank}").open("a") as file:
            file.writelines(f"{number}\n" for number in view.batch.columns["number"].tolist())


def starts(folder: Path) -> list[tuple[int, int]]:
    """Return rank and first step of each start of a worker, in order."""
    lines = (folder / "starts").read_text().splitlines()
    return [(int(rank), int(step)) for rank, step in map(str.split, lines)]


def sum_of_ranks() -> float:
    """Return the sum of rank + 1, by Horovod's interface."""
    hvd.init()
    total = hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum).item()
    hvd.shutdown()
    return total
