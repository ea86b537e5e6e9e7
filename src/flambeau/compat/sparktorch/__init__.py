"""SparkTorch's interface on Flambeau: its modules, names, parameters and defaults."""

import importlib
from typing import Any

from flambeau.errors import MissingDependencyError

_HOME = {
    "PysparkPipelineWrapper": "pipeline_util",
    "SparkTorch": "torch_distributed",
    "create_spark_torch_model": "inference",
    "serialize_torch_obj": "util",
    "serialize_torch_obj_lazy": "util",
}

__all__ = [
    "PysparkPipelineWrapper",
    "SparkTorch",
    "create_spark_torch_model",
    "serialize_torch_obj",
    "serialize_torch_obj_lazy",
]


def __getattr__(name: str) -> Any:
    # Workers import the criterion from this package, and should not load Spark for it.
    if name not in _HOME:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise MissingDependencyError(
            f"{__name__} needs pyspark: pip install 'flambeau[spark]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
