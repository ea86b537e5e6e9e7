"""A run directory, and states to save in it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.store import TrainingState


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


@pytest.fixture
def make_state() -> Callable[[int], TrainingState]:
    """A state whose every value depends on the step."""

    def make(step: int) -> TrainingState:
        generator = torch.Generator().manual_seed(step)
        return TrainingState(
            step=step,
            epoch=step // 10,
            workers=2,
            model={"weight": torch.randn(3, 4, generator=generator), "bias": torch.ones(3)},
            extra={"optimizer": {0: torch.full((3,), float(step))}, "position": (step, 7)},
            metrics={"loss": 1.0 / (step + 1)},
        )

    return make
