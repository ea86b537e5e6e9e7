"""Models and jobs of PyTorch on Angel.

`load` returns the model of a TorchScript file as a module whose sparse weights are tables. The rest
of the package implements the command `flambeau angel`, which takes the arguments of Angel's jobs.

Names are imported when they are first used, so arguments can be parsed without torch.
"""

import importlib
from typing import Any

_HOME = {
    "AngelModel": "flambeau.compat.angel.model",
    "load": "flambeau.compat.angel.model",
}

__all__ = ["AngelModel", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flambeau.compat.angel' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
