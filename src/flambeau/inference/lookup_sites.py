"""The modules in which a model looks up rows, and their replacement."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast, final

import torch
from torch import nn

from flambeau.embeddings.dense_fields import DenseFields
from flambeau.embeddings.external import ExternalEmbedding, ExternalEmbeddingBag
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError

_KINDS = (SparseEmbedding, ExternalEmbedding, ExternalEmbeddingBag)


@final
class Root(nn.Module):
    """Parent of a model, so that the model itself can be replaced as well."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *positional: Any, **named: Any) -> Any:
        """Return the model's output."""
        return self.model(*positional, **named)


def replaced(model: nn.Module, make: Callable[[SparseEmbedding], nn.Module]) -> nn.Module:
    """Return a copy of the model in which `make(rows)` replaces each module that looks up rows.

    The replacement is called with the ids. A module that is used twice is replaced by one.
    """
    root = graph_copy(model)
    made: dict[nn.Module, nn.Module] = {}
    for parent, name, module in list(_sites(root)):
        if module not in made:
            rows = module if isinstance(module, SparseEmbedding) else cast(Any, module).rows
            rows.copied = False  # only the shape of the copy is used
            kept = module.initial.dtype if not isinstance(module, SparseEmbedding) else None
            made[module] = _Cast(make(rows), cast("torch.dtype | None", kept))
        setattr(parent, name, made[module])
    return root.eval()


def graph_copy(model: nn.Module) -> Root:
    """Return a copy of the model for a graph, in which an invalid id reads as a missing one."""
    root = Root(copy.deepcopy(model).eval())
    for module in root.modules():
        if isinstance(module, DenseFields):
            module.checked = False
    return root


def has_dense_fields(model: nn.Module) -> bool:
    """Return whether the graph takes ids for something other than lookups."""
    return any(isinstance(module, DenseFields) for module in model.modules())


def rows_of_sites(model: nn.Module) -> list[SparseEmbedding]:
    """Return the embeddings of a model, each once."""
    return [module for module in model.modules() if isinstance(module, SparseEmbedding)]


def _sites(root: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in root.modules():
        if isinstance(parent, _KINDS):
            continue
        for name, module in parent._modules.items():
            if isinstance(module, _KINDS):
                yield parent, name, module


@final
class _Cast(nn.Module):
    """Wrapper of a lookup's replacement that casts the result to the model's dtype."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, ids: Any, offsets: Any = None, weights: Any = None) -> Any:
        """Return the replacement's output."""
        if offsets is not None or weights is not None:
            raise ModelError(
                "a lookup with offsets or weights of its own cannot be exported: give the ids as "
                "a jagged column, which has both"
            )
        found = self.inner(ids)
        return found if self.dtype is None else found.to(self.dtype)
