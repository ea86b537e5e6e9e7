"""Learning rate schedules, built from their settings."""

import inspect
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from flambeau.config.code import CodeRef
from flambeau.config.schedule import Schedule
from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.training.best import is_higher_better, watched_value

LoadCode = Callable[[CodeRef], Any]


class LearningRate(ABC):
    """Schedule that sets an optimizer's learning rates during training."""

    @abstractmethod
    def step(self) -> None:
        """Advance after an update of the weights."""

    @abstractmethod
    def epoch_end(self) -> None:
        """Advance after the last update of an epoch."""

    def evaluated(self, metrics: Mapping[str, float]) -> None:  # noqa: B027 - optional
        """Advance after an evaluation; all workers call it with the same values."""

    @property
    def watches(self) -> bool:
        """Return whether it depends on evaluations."""
        return False

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position, as JSON values (or tensors)."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a position and set the optimizer's learning rates."""


@final
class FactorSchedule(LearningRate):
    """Optimizer's learning rates times `factor(updates, epochs)`.

    Only the position is saved: a resumed run may scale its learning rates differently, for example
    for another number of workers.
    """

    def __init__(self, optimizer: Optimizer, factor: Callable[[int, int], float]) -> None:
        self._optimizer = optimizer
        self._factor = factor
        self._base = [group["lr"] for group in optimizer.param_groups]
        self._updates = 0
        self._epochs = 0
        self._apply()

    def step(self) -> None:
        self._updates += 1
        self._apply()

    def epoch_end(self) -> None:
        self._epochs += 1
        self._apply()

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._updates, "epochs": self._epochs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._updates, self._epochs = int(state["updates"]), int(state["epochs"])
        self._apply()

    def _apply(self) -> None:
        factor = self._factor(self._updates, self._epochs)
        for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * factor


@final
class TorchSchedule(LearningRate):
    """Torch scheduler, advanced after each update or epoch, or with each value of `metric`."""

    def __init__(
        self, scheduler: LRScheduler, *, per_epoch: bool = False, metric: str | None = None
    ) -> None:
        self._scheduler = scheduler
        self._per_epoch, self._metric = per_epoch, metric
        # On servers the local optimizer makes no updates, which torch would warn about.
        scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]

    def step(self) -> None:
        if not self._per_epoch and self._metric is None:
            self._scheduler.step()

    def epoch_end(self) -> None:
        if self._per_epoch and self._metric is None:
            self._scheduler.step()

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        if isinstance(self._scheduler, ReduceLROnPlateau) and self._metric is not None:
            self._scheduler.step(watched_value(self._metric, metrics))

    @property
    def watches(self) -> bool:
        return self._metric is not None

    def state_dict(self) -> dict[str, Any]:
        rates = [group["lr"] for group in self._scheduler.optimizer.param_groups]
        return {"scheduler": _plain(self._scheduler.state_dict()), "rates": rates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # Values that JSON cannot hold were not saved; this scheduler has them from its arguments.
        self._scheduler.load_state_dict({**self._scheduler.state_dict(), **state["scheduler"]})
        groups = self._scheduler.optimizer.param_groups
        for group, rate in zip(groups, state["rates"], strict=True):
            group["lr"] = rate


def build_schedule(
    setting: Schedule | CodeRef,
    optimizer: Optimizer,
    total_steps: int | None,
    steps_per_epoch: int | None,
    load_code: LoadCode,
    metric: str | None = None,
) -> LearningRate:
    """Build the schedule of one optimizer, which sets its first learning rate at once.

    `total_steps` and `steps_per_epoch` are None if the length of the data is unknown; `metric` (to
    watch unless the setting names another) is None if the workers do not evaluate.
    """
    if isinstance(setting, CodeRef):
        made = _supported(load_code(setting)(optimizer), setting.name)
        if not isinstance(made, ReduceLROnPlateau):
            return TorchSchedule(made)
        metric = _watched(metric)
        _check_mode(made, metric)
        return TorchSchedule(made, metric=metric)
    if setting.kind == "torch":
        return _torch_schedule(setting, optimizer, total_steps, steps_per_epoch, load_code, metric)
    return FactorSchedule(optimizer, schedule_factor(setting, total_steps))


def schedule_factor(setting: Schedule, total_steps: int | None) -> Callable[[int, int], float]:
    """Return a function of updates and epochs that gives the factor on the learning rate."""
    shape = _step_factor(setting) if setting.kind == "step" else _decay(setting, total_steps)
    rise = 1.0 - setting.warmup_from

    def factor(updates: int, epochs: int) -> float:
        if updates < setting.warmup:
            return setting.warmup_from + rise * updates / setting.warmup
        return shape(updates, epochs)

    return factor


def _step_factor(setting: Schedule) -> Callable[[int, int], float]:
    milestones = sorted(setting.milestones)

    def factor(updates: int, epochs: int) -> float:
        position = epochs if setting.unit == "epoch" else updates
        return float(setting.gamma ** bisect_right(milestones, position))

    return factor


def _decay(setting: Schedule, total_steps: int | None) -> Callable[[int, int], float]:
    """Return a factor that decays from 1 to `end` and stays there."""
    if setting.kind == "constant":
        return lambda updates, epochs: 1.0
    length = _decay_length(setting, total_steps)

    def factor(updates: int, epochs: int) -> float:
        progress = min(1.0, max(0, updates - setting.fall_starts) / length)
        return setting.end + (1.0 - setting.end) * _remaining(setting, progress)

    return factor


def _remaining(setting: Schedule, progress: float) -> float:
    if setting.kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    power = setting.power if setting.kind == "polynomial" else 1.0
    return float((1.0 - progress) ** power)


def _decay_length(setting: Schedule, total_steps: int | None) -> int:
    if setting.steps is not None:
        return setting.steps
    if total_steps is None:
        raise ConfigError(
            f"schedule.kind='{setting.kind}' needs the length of the training, which this data "
            "does not tell: set schedule.steps or max_steps"
        )
    return max(1, total_steps - setting.fall_starts)


def _torch_schedule(
    setting: Schedule,
    optimizer: Optimizer,
    total_steps: int | None,
    steps_per_epoch: int | None,
    load_code: LoadCode,
    metric: str | None,
) -> LearningRate:
    assert setting.scheduler is not None
    if setting.warmup:
        raise ConfigError(
            "schedule.warmup cannot be combined with kind='torch': use a scheduler that warms up, "
            "or give f(optimizer) that returns a SequentialLR"
        )
    kind = load_code(CodeRef(path=setting.scheduler))
    known = list(inspect.signature(kind).parameters)[1:]
    for argument in setting.args:
        if argument not in known:
            hint = nearest(argument, known)
            raise ConfigError(f"schedule.args: {setting.scheduler} has no '{argument}'; {hint}")
    lengths = {} if setting.unit == "epoch" else _lengths(setting, total_steps, steps_per_epoch)
    args = setting.args | {name: value for name, value in lengths.items() if name in known}
    plateau = isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau)
    if setting.metric is not None and not plateau:
        raise ConfigError(f"schedule.metric: {setting.scheduler} watches no metric; remove it")
    watched = _watched(metric, setting.metric) if plateau else None
    if watched is not None:
        args = {"mode": "max" if is_higher_better(watched) else "min", **args}
    try:
        scheduler = kind(optimizer, **args)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"schedule.scheduler={setting.scheduler}: {error}") from error
    return TorchSchedule(
        _supported(scheduler, setting.scheduler),
        per_epoch=setting.unit == "epoch",
        metric=watched,
    )


def _watched(metric: str | None, chosen: str | None = None) -> str:
    if metric is None:
        raise ConfigError(
            "schedule: ReduceLROnPlateau watches a metric of the validation data, and the workers "
            "evaluate none: give valid=, and leave evaluator out"
        )
    return chosen or metric


def _check_mode(scheduler: ReduceLROnPlateau, metric: str) -> None:
    """Raise `ConfigError` if a user's scheduler has the wrong mode for the watched metric."""
    better = "max" if is_higher_better(metric) else "min"
    if scheduler.mode != better:
        raise ConfigError(
            f"schedule: this ReduceLROnPlateau has mode='{scheduler.mode}', and '{metric}' "
            f"(checkpoints.best), which it watches, needs '{better}': change one of them, or give "
            "fb.Schedule(kind='torch', scheduler='torch.optim.lr_scheduler:ReduceLROnPlateau', "
            "metric=...)"
        )


def _lengths(
    setting: Schedule, total_steps: int | None, steps_per_epoch: int | None
) -> dict[str, int]:
    """Return the lengths that OneCycleLR and similar schedulers need, unless they are given."""
    if "epochs" in setting.args:
        name, value = "steps_per_epoch", steps_per_epoch
    else:
        name, value = "total_steps", total_steps
    return {} if value is None or name in setting.args else {name: value}


def _supported(scheduler: object, name: str) -> LRScheduler:
    if not isinstance(scheduler, LRScheduler):
        raise ConfigError(f"schedule: {name} gave a {type(scheduler).__name__}, not an LRScheduler")
    return scheduler


def _plain(value: Any) -> Any:
    """Return a scheduler's state without values JSON cannot hold (functions, number keys)."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if _is_plain(item)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value)
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str | torch.Tensor)
