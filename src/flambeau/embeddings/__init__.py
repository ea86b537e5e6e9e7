"""Embedding tables as PyTorch modules: `SparseEmbedding`, and the lookups behind it.

A module has the spec of its table and computes with rows; a `LookupBackend` provides the rows. In a
training step, the forward pass pulls rows (each id once), and after the backward pass
`Lookups.gradients()` returns the gradients to push.

Names are imported on first use: a model without tables needs no kernels.
"""

import importlib
from typing import Any

_HOME = {
    "Capacity": "flambeau.config.tables",
    "InProcessTables": "flambeau.embeddings.in_process",
    "Initializer": "flambeau.config.tables",
    "MinCount": "flambeau.config.tables",
    "Probability": "flambeau.config.tables",
    "SparseEmbedding": "flambeau.embeddings.sparse_embedding",
    "TableSpec": "flambeau.config.tables",
    "TimeToLive": "flambeau.config.tables",
    "externalize": "flambeau.embeddings.externalizing",
    "train_in_process": "flambeau.embeddings.own_loop",
}

__all__ = [
    "Capacity",
    "InProcessTables",
    "Initializer",
    "MinCount",
    "Probability",
    "SparseEmbedding",
    "TableSpec",
    "TimeToLive",
    "externalize",
    "train_in_process",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flambeau.embeddings' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
