"""Embedding tables as PyTorch modules: `SparseEmbedding`, and what stands behind it.

A module knows the spec of its table and what to do with rows; where the rows are is the business
of a `LookupBackend`. A training step is forward (rows are pulled, each id once), backward, and
`Lookups.gradients()`, which are then pushed.
"""

from flambeau.config.tables import (
    Capacity,
    Initializer,
    MinCount,
    Probability,
    TableSpec,
    TimeToLive,
)
from flambeau.embeddings.externalize import externalize
from flambeau.embeddings.in_process import InProcessTables
from flambeau.embeddings.own_loop import train_in_process
from flambeau.embeddings.sparse_embedding import SparseEmbedding

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
