"""The best value of a metric so far, and for how long it has not improved."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flambeau.errors import ConfigError
from flambeau.training.metrics import higher_is_better


def is_higher_better(metric: str) -> bool:
    """Return whether higher values of a metric, possibly of one task, are better."""
    name = metric.split("/")[-1]
    if name == "calibration":
        raise ConfigError("calibration is best at 1, not as low or high as can be; set mode")
    return higher_is_better(name)


def watched_value(metric: str, metrics: Mapping[str, float]) -> float:
    """Return the value of the watched metric; raise `ConfigError` if it was not evaluated."""
    if metric not in metrics:
        raise ConfigError(
            f"there is no metric '{metric}' to watch; available metrics: "
            f"{', '.join(sorted(metrics)) or 'none'}: add it to metrics="
        )
    return metrics[metric]


@dataclass
class Best:
    """Best value so far of one metric. `stale` counts evaluations without improvement."""

    metric: str
    mode: Literal["auto", "min", "max"] = "auto"
    min_delta: float = 0.0
    value: float | None = None
    stale: int = 0
    _higher: bool = field(init=False)

    def __post_init__(self) -> None:
        known = {"min": False, "max": True}
        self._higher = known[self.mode] if self.mode in known else is_higher_better(self.metric)

    def improves(self, metrics: Mapping[str, float]) -> bool:
        """Record an evaluation; return whether it is the best so far."""
        new = watched_value(self.metric, metrics)
        if math.isnan(new) or not self._better(new):
            self.stale += 1
            return False
        self.value, self.stale = new, 0
        return True

    def reaches(self, target: float, metrics: Mapping[str, float]) -> bool:
        """Return whether an evaluation is as good as `target`, or better."""
        value = watched_value(self.metric, metrics)
        return value >= target if self._higher else value <= target

    def _better(self, new: float) -> bool:
        if self.value is None:
            return True
        gain = new - self.value if self._higher else self.value - new
        return gain > self.min_delta

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values, for a checkpoint."""
        return {"value": self.value, "stale": self.stale}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.value, self.stale = state["value"], state["stale"]
