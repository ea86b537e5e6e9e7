"""Replacements for torch's embeddings whose weights have become the first rows of a table."""

from typing import Literal, cast, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import Array
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError
from flambeau.tables.index.ids import Ids


@final
class ExternalEmbedding(nn.Module):
    """Drop-in replacement for an `nn.Embedding`; `initial` [n, dim] are its weights.

    They are the first rows of the table, and are read as long as no table is attached.
    """

    def __init__(self, original: nn.Embedding, spec: TableSpec) -> None:
        super().__init__()
        self.initial = original.weight.detach().cpu()
        self.padding_idx = original.padding_idx
        self.rows = SparseEmbedding(spec)

    def forward(self, input: Tensor) -> Tensor:
        """Return rows [*input.shape, dim] for ids below the number of weights."""
        _check_range(self.rows.spec.name, input, len(self.initial))
        if _reads_initial(self.rows):
            return functional.embedding(input.cpu(), self.initial).to(input.device)
        found = cast(Tensor, self.rows(input.long())).to(self.initial.dtype)
        if self.padding_idx is None:
            return found
        return torch.where((input == self.padding_idx)[..., None], found.detach(), found)


@final
class ExternalEmbeddingBag(nn.Module):
    """Drop-in replacement for an `nn.EmbeddingBag`; `initial` [n, dim] are its weights."""

    def __init__(self, original: nn.EmbeddingBag, spec: TableSpec) -> None:
        super().__init__()
        self.initial = original.weight.detach().cpu()
        self.mode = original.mode
        self.include_last_offset = original.include_last_offset
        pooling = cast(Literal["sum", "mean", "max"], original.mode)
        self.rows = SparseEmbedding(spec, pooling, include_last_offset=self.include_last_offset)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Return one row per bag [bags, dim], for 2-D input, or for 1-D input with offsets."""
        name = self.rows.spec.name
        if input.dim() != (2 if offsets is None else 1):
            raise ModelError(
                f"table '{name}': input has shape {tuple(input.shape)}, offsets are {offsets}; "
                "give [bags, length], or 1-D input and offsets"
            )
        _check_range(name, input, len(self.initial))
        if _reads_initial(self.rows):
            return self._initial_bags(input, offsets, per_sample_weights)
        starts = None if offsets is None else offsets.long()
        weights = None if per_sample_weights is None else per_sample_weights.to(self.rows.dtype)
        found = cast(Tensor, self.rows(input.long(), starts, weights))
        return found.to(self.initial.dtype)

    def _initial_bags(
        self, input: Tensor, offsets: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        found = functional.embedding_bag(
            input.cpu(),
            self.initial,
            None if offsets is None else offsets.cpu(),
            mode=self.mode,
            per_sample_weights=None if weights is None else weights.cpu(),
            include_last_offset=self.include_last_offset,
        )
        return found.to(input.device)


def initial_rows(model: nn.Module) -> list[tuple[TableSpec, Ids, Array]]:
    """Return the first rows of a model's tables: their ids [n] and values [n, dim]."""
    return [
        (module.rows.spec, np.arange(len(module.initial)), _values(module))
        for module in model.modules()
        if isinstance(module, ExternalEmbedding | ExternalEmbeddingBag)
    ]


def _values(module: ExternalEmbedding | ExternalEmbeddingBag) -> Array:
    return module.initial.to(module.rows.dtype).numpy()


def _reads_initial(rows: SparseEmbedding) -> bool:
    return rows.lookups is None and not rows.learns and not rows.copied


def _check_range(name: str, ids: Tensor, rows: int) -> None:
    """Raise `ModelError` for ids out of range, as torch does: a table would create rows."""
    if ids.numel() == 0:
        return
    low, high = (int(number) for number in ids.aminmax())
    if low < 0 or high >= rows:
        wrong = low if low < 0 else high
        raise ModelError(
            f"table '{name}': id {wrong} is out of range; the embedding it replaces has rows "
            f"0 to {rows - 1} (a SparseEmbedding would take any id)"
        )
