"""Models and jobs of PyTorch on Angel.

`load` gives the model of a TorchScript file as a module whose sparse weights are tables; the rest
of the package is what the command `flambeau angel` does with Angel's job words.

Names are imported when they are first used: job words are read without torch.
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
