"""Embedding tables as PyTorch modules: `SparseEmbedding`, and what stands behind it.

A module knows the spec of its table and what to do with rows; where the rows are is the business
of a `LookupBackend`. A training step is forward (rows are pulled, each id once), backward, and
`Lookups.gradients()`, which are then pushed.

Names are imported when they are first used: a model without tables needs no kernels.
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
