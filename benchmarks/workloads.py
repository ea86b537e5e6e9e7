"""What both sides of the all-reduce benchmark train: the same model, data and steps."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import flambeau as fb
from flambeau.clusters.attached.launchers import detected
from flambeau.models import MLP, resnet18

WORKERS = 2
LEARNING_RATE = 0.01
MOMENTUM = 0.9


def cluster() -> fb.Local | fb.Attached | fb.Ray:
    """Workers of this machine, or the processes of the launcher that has started this one."""
    if os.environ.get("CLUSTER") == "ray":
        return fb.Ray(WORKERS)
    return fb.Local(WORKERS) if detected() is None else fb.Attached()


@dataclass(frozen=True)
class Workload:
    """A training of which blocks of `timed` steps are measured, each after `warm` steps."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    rows: int
    batch_size: int
    warm: int
    timed: int

    def data(self) -> tuple[Tensor, Tensor]:
        """Random float32 rows of `shape`, and their classes."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.rows, *self.shape, generator=generator)
        return x, torch.randint(10, (self.rows,), generator=generator)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of all workers together; what is left over is not trained on."""
        return self.rows // (self.batch_size * WORKERS)

    def steps(self, blocks: int) -> int:
        """Steps of a whole run."""
        return blocks * (self.warm + self.timed)

    def epochs(self, blocks: int) -> int:
        """Epochs that are enough for it."""
        return -(-self.steps(blocks) // self.steps_per_epoch)

    def samples_per_second(self, seconds: float) -> float:
        """The speed of all workers, from the seconds of a block's timed steps."""
        return self.timed * self.batch_size * WORKERS / seconds


WORKLOADS = {
    # One epoch is timed, so that every block has exactly one change of epochs in it.
    "mlp": Workload(lambda: MLP(784), (784,), 60_000, batch_size=256, warm=15, timed=117),
    "resnet18": Workload(resnet18, (3, 32, 32), 10_240, batch_size=32, warm=1, timed=4),
}
