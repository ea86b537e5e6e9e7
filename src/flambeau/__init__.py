"""Train any PyTorch model across many processes, on whatever you have.

    import flambeau as fb
    result = fb.fit(model, train=(x, y), loss="cross_entropy", cluster=fb.Local(4))

Names are imported when they are first used, so that starting is quick.
"""

import importlib
from typing import Any

from flambeau.version import __version__

_HOME = {
    "AllReduce": "flambeau.config",
    "Attached": "flambeau.config",
    "Batch": "flambeau.data.batch",
    "Callback": "flambeau.training.callbacks",
    "Checkpoints": "flambeau.config",
    "EarlyStopping": "flambeau.config",
    "Hybrid": "flambeau.config",
    "Jagged": "flambeau.data.jagged",
    "Local": "flambeau.config",
    "ParameterServer": "flambeau.config",
    "Predictor": "flambeau.runs.predictor",
    "Ray": "flambeau.config",
    "Result": "flambeau.driver.result",
    "Schedule": "flambeau.config",
    "Spark": "flambeau.config",
    "Ssh": "flambeau.config",
    "columns": "flambeau.config",
    "files": "flambeau.data.data_kinds",
    "fit": "flambeau.driver.fit",
    "optim": "flambeau.config",
    "run": "flambeau.driver.run",
}

#: Packages that are public as a whole.
_PACKAGES = ("embeddings", "features")

__all__ = [
    "AllReduce",
    "Attached",
    "Batch",
    "Callback",
    "Checkpoints",
    "EarlyStopping",
    "Hybrid",
    "Jagged",
    "Local",
    "ParameterServer",
    "Predictor",
    "Ray",
    "Result",
    "Schedule",
    "Spark",
    "Ssh",
    "__version__",
    "columns",
    "embeddings",
    "features",
    "files",
    "fit",
    "optim",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"flambeau.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'flambeau' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
