"""PyTorch models as stages of Spark ML pipelines: `TorchEstimator` and `TorchModel`."""

import importlib
from typing import TYPE_CHECKING, Any

from flambeau.errors import MissingDependencyError

if TYPE_CHECKING:
    from flambeau.spark.estimator import TorchEstimator
    from flambeau.spark.model import TorchModel

_HOME = {
    "TorchEstimator": "flambeau.spark.estimator",
    "TorchModel": "flambeau.spark.model",
}

__all__ = ["TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flambeau.spark' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise MissingDependencyError(
            "flambeau.spark needs pyspark: pip install 'flambeau[spark]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
