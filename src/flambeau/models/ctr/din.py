"""DIN: attention over a user's history, by its relevance to the item to score."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from flambeau.config.tables import TableSpec
from flambeau.models.ctr.layers.dense_layers import dense_layers
from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.flat_inputs import FlatInputs
from flambeau.models.ctr.layers.history import HistoryEmbedding, ItemEmbedding


@final
class DIN(nn.Module):
    """Target attention over a history, combined with ids of fields and numbers.

    The history shares the item's table. The weight of a history item h for the target item i is a
    small network of [h, i, h - i, h * i]; the weighted sum represents the user's interest. With
    `normalize` the weights of a history sum to 1.

    `length` is how many of the newest items count (None: all); `padding` is the id that marks empty
    places in a history given as a tensor. `table` are further settings of both tables.
    """

    def __init__(
        self,
        fields: int,
        dense: int = 0,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (200, 80),
        attention: Sequence[int] = (64, 32),
        *,
        dropout: float = 0.0,
        normalize: bool = False,
        length: int | None = None,
        padding: int | None = None,
        base_rate: float | None = None,
        table: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        items = TableSpec("item", embedding_dim, **(table or {}))
        self.inputs = FlatInputs(fields, dense, embedding_dim, **(table or {}))
        self.item = ItemEmbedding(items)
        self.history = HistoryEmbedding(items, length, padding)
        self.attention = dense_layers(4 * embedding_dim, attention, 1)
        width = self.inputs.width + 2 * embedding_dim
        self.top = dense_layers(width, hidden, 1, dropout, base_rate)
        self.normalize = normalize

    def forward(self, ids: Ids, item: Ids, history: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]; ids are [rows, fields], dense values [rows, dense]."""
        wanted = self.item(item)
        if wanted.dim() == 3:
            wanted = wanted.squeeze(1)
        interest = self.interest(wanted, *self.history(history))
        parts = [self.inputs(ids, dense), wanted, interest]
        logits: Tensor = self.top(torch.cat(parts, dim=1))
        return logits.squeeze(1)

    def interest(self, item: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Return the weighted sum of each history [rows, longest, dim] for its item; 0 if empty."""
        target = item[:, None].expand_as(rows)
        pairs = torch.cat([rows, target, rows - target, rows * target], dim=2)
        weights: Tensor = self.attention(pairs).squeeze(2)
        if self.normalize:
            lowest = torch.finfo(weights.dtype).min
            weights = torch.softmax(weights.masked_fill(~mask, lowest), dim=1)
        weights = weights.masked_fill(~mask, 0.0)
        return (weights[:, :, None] * rows).sum(dim=1)
