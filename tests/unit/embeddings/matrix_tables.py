"""A backend whose table is a given matrix, and which remembers what it was asked."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import Array, LookupBackend, TableGradient
from flambeau.embeddings.lookups import Lookups
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.tables.index.hashing import Ids

SPEC = TableSpec("t", 3, dtype="fp64")


@final
class MatrixTables(LookupBackend):
    """Row i of `weight` is that of id i."""

    def __init__(self, weight: Array) -> None:
        self.weight = weight
        self.declared: list[TableSpec] = []
        self.pulled: list[tuple[list[int], bool]] = []

    def declare(self, specs: Sequence[TableSpec]) -> None:
        self.declared += specs

    def pull(self, wanted: Sequence[tuple[TableSpec, Ids]], *, training: bool) -> list[Array]:
        self.pulled += [(ids.tolist(), training) for _, ids in wanted]
        return [self.weight[ids] for _, ids in wanted]

    def push(self, gradients: Sequence[TableGradient], factor: float) -> None:
        raise AssertionError("these tests look at gradients before they are pushed")


def matrix(rows: int = 8, dim: int = 3, seed: int = 0) -> Array:
    """A matrix of float64 in which some numbers are equal, as ties of a maximum."""
    return np.random.default_rng(seed).integers(-3, 4, (rows, dim)) / 2.0


def attached(weight: Array, *args: Any, **options: Any) -> SparseEmbedding:
    """A module over a matrix."""
    module = SparseEmbedding(SPEC, *args, **options)
    module.lookups = Lookups(MatrixTables(weight))
    return module


def dense_gradient(module: SparseEmbedding, rows: int) -> torch.Tensor:
    """The gradient of the step as that of a whole matrix."""
    assert module.lookups is not None
    (gradient,) = module.lookups.gradients()
    out = torch.zeros(rows, gradient.spec.dim, dtype=torch.float64)
    out[torch.from_numpy(gradient.ids)] = torch.from_numpy(gradient.grads)
    return out
