"""The parts of a worker's training that its loop uses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from flambeau.strategies.base import Strategy
from flambeau.strategies.group import Group
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.evaluation import Scores
from flambeau.training.schedules import LearningRate
from flambeau.training.step import Step
from flambeau.training.step_times import StepTimes


class Saving(Protocol):
    """Writer of checkpoints. A seam: only the worker role defines their contents."""

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        """Start to write a checkpoint of the current state. Called on every worker."""


@dataclass
class TrainingParts:
    """Parts of one worker's training; built by the worker role, used by either loop."""

    model: nn.Module
    optimizers: dict[str, Optimizer]
    schedules: dict[str, LearningRate]
    strategy: Strategy
    group: Group
    step: Step
    callbacks: Callback
    view: TrainingView
    evaluate: Callable[[], Scores] | None
    saving: Saving
    report: Callable[..., None]
    times: StepTimes
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
