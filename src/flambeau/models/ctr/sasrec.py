"""SASRec: the next item, by self-attention over the items before it."""

from collections.abc import Mapping
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from flambeau.config.tables import TableSpec
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.history import HistoryEmbedding, ItemEmbedding
from flambeau.models.ctr.layers.in_batch import InBatchLogits


@final
class SASRec(nn.Module):
    """Scores of items after a history: the product of the item's row and the history's vector.

    The last `length` items of a history pass through `blocks` of causal self-attention; positions
    are counted from the newest. The history shares the items' table. The result of `forward`
    depends on the source of negatives: with `"given"`, one score for each item passed in; with
    `"batch"`, logits [rows, rows] for `loss="in_batch_softmax"`, with the logQ correction of
    `InBatchLogits`. `padding` is the id that marks empty places in a history given as a tensor;
    `table=` are further settings of the items' table.
    """

    def __init__(
        self,
        embedding_dim: int = 32,
        length: int = 50,
        blocks: int = 2,
        heads: int = 2,
        *,
        dropout: float = 0.1,
        negatives: Literal["given", "batch"] = "given",
        temperature: float = 1.0,
        correct: bool = True,
        padding: int | None = None,
        table: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if negatives not in ("given", "batch"):
            raise ModelError(f"negatives={negatives!r}: use 'given' or 'batch'")
        items = TableSpec("item", embedding_dim, **(table or {}))
        self.history = HistoryEmbedding(items, length, padding)
        self.item = ItemEmbedding(items)
        self.positions = nn.Embedding(length, embedding_dim)
        nn.init.normal_(self.positions.weight, std=embedding_dim**-0.5)
        #: Vector of users whose history is empty.
        self.nothing = nn.Parameter(torch.zeros(embedding_dim))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(embedding_dim, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(embedding_dim)
        in_batch = InBatchLogits(temperature, correct=correct)
        self.logits = in_batch if negatives == "batch" else None

    def forward(self, history: Ids, item: Ids, item_probability: Tensor | None = None) -> Tensor:
        """Return scores of items [rows] or [rows, candidates], of that shape; or batch logits.

        `item_probability` [rows] is an item's share of the rows, for logits [rows, rows] (negatives
        from the batch).
        """
        users = self.user_vectors(history)
        items = self.item_vectors(item)
        if self.logits is not None:
            found: Tensor = self.logits(users, items.flatten(1), item, item_probability)
            return found
        if items.dim() == 2:
            return (users * items).sum(dim=1)
        return torch.einsum("rd,rcd->rc", users, items)

    def user_vectors(self, history: Ids) -> Tensor:
        """Return vectors of the next item after each history. [rows, dim]"""
        rows, mask = self.history(history)
        if not mask.shape[1]:
            # At least one place, so that every weight has a gradient whatever the histories are.
            rows, mask = pad(rows, (0, 0, 0, 1)), pad(mask, (0, 1))
        lengths = mask.sum(dim=1)
        ages = lengths[:, None] - 1 - torch.arange(mask.shape[1], device=mask.device)
        states = rows * rows.shape[2] ** 0.5 + self.positions(ages.clamp(min=0))
        states = self.dropout(states)
        for block in self.blocks:
            states = block(states)
        # Padding comes after the items, where causal attention does not look.
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[2])
        newest = self.norm(states.gather(1, last).squeeze(1))
        return torch.where(lengths[:, None] > 0, newest, self.nothing)

    def item_vectors(self, item: Ids) -> Tensor:
        """Return the items' rows. [*item.shape, dim]"""
        rows: Tensor = self.item(item)
        return rows

    @torch.no_grad()
    def rank(self, history: Ids, candidates: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
        """Return ids and scores [rows, k] of the best of `candidates` (int64 [items]) per history.

        Candidates are scored in pieces, so that there may be many.
        """
        users = self.user_vectors(history)
        best = users.new_empty(len(users), 0)
        ids = candidates.new_empty(len(users), 0)
        for start in range(0, len(candidates), _AT_ONCE):
            piece = candidates[start : start + _AT_ONCE]
            scores = users @ self.item_vectors(piece).T
            best = torch.cat([best, scores], dim=1)
            ids = torch.cat([ids, piece.expand(len(users), -1)], dim=1)
            best, places = best.topk(min(k, best.shape[1]), dim=1)
            ids = ids.gather(1, places)
        return ids, best


#: Candidates that are scored at a time.
_AT_ONCE = 1 << 14


class _Block(nn.Module):
    """Causal self-attention and a small network, each with pre-normalisation and a residual."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise ModelError(f"embedding_dim={dim} is not a multiple of heads={heads}")
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.parts = nn.Linear(dim, 3 * dim)
        self.joined = nn.Linear(dim, dim)
        self.network = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.dropout(self._attended(self.first_norm(states)))
        out: Tensor = states + self.dropout(self.network(self.second_norm(states)))
        return out

    def _attended(self, states: Tensor) -> Tensor:
        """Return the attention's result [rows, places, dim]; a place sees none after it."""
        shape = (*states.shape[:2], self.heads, states.shape[2] // self.heads)
        query, key, value = (
            part.reshape(shape).transpose(1, 2) for part in self.parts(states).chunk(3, dim=2)
        )
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.joined(seen.transpose(1, 2).reshape(states.shape))
        return joined
