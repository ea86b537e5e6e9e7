"""The job of the start-up benchmark: a model and data; and, run as a script, plain torch."""

import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build() -> nn.Module:
    """A small MLP."""
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def data() -> tuple[Tensor, Tensor]:
    """4,096 random rows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 32, generator=generator)
    return x, torch.randint(10, (4096,), generator=generator)


def main(done: Path) -> None:
    """One step, then the time of day to a file."""
    model, (x, y) = build(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    F.cross_entropy(model(x[:128]), y[:128]).backward()
    optimizer.step()
    done.write_text(repr(time.time()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
