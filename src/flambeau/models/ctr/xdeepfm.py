"""xDeepFM (Lian et al. 2018)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.dense_values import beside, checked
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.linear import Linear
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class CompressedInteraction(nn.Module):
    """X^k_h = sum_{i,j} W^k_{h,i,j} (X^{k-1}_i * X^0_j), for `maps` = H_1, H_2, ... of each layer.

    Here * is element-wise, and X^0 are the fields' rows. The result is the sums over the elements
    of all X^k_h with k > 0.
    """

    def __init__(self, fields: int, maps: Sequence[int]) -> None:
        super().__init__()
        if not maps or any(size < 1 for size in maps):
            raise ModelError(f"cin={tuple(maps)}: give at least one size, each at least 1")
        self.weights = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(after, before * fields))
            for before, after in pairwise((fields, *maps))
        )
        self.width = sum(maps)

    def forward(self, x0: Tensor) -> Tensor:
        """Return the sums [rows, width] for the fields' rows [rows, fields, dim]."""
        dim = x0.shape[2]
        fields = x0.transpose(0, 1).flatten(1)  # [fields, rows * dim], so a layer is one product
        x, before, sums = fields, x0, []
        for number, weight in enumerate(self.weights[:-1]):
            if number == 0:
                x = _first_layer(weight, fields)
            else:
                x = weight @ (x[:, None] * fields).flatten(0, 1)
            before = x.view(x.shape[0], -1, dim).transpose(0, 1)  # [rows, maps, dim]
            sums.append(before.sum(2))
        # Only sums of the last layer are needed, so the sums of products are enough.
        products = torch.bmm(before, x0.transpose(1, 2)).flatten(1)
        return torch.cat([*sums, products @ self.weights[-1].t()], dim=1)


def _first_layer(weight: Tensor, x: Tensor) -> Tensor:
    """Return sum_{i,j} W_{h,i,j} x_i x_j, from the products with i <= j, for x [fields, any]."""
    count = x.shape[0]
    first, second = torch.triu_indices(count, count, device=x.device)
    square = weight.view(-1, count, count)
    both = (square.triu() + square.mT.triu(1)).flatten(1).index_select(1, first * count + second)
    return both @ (x.index_select(0, first) * x.index_select(0, second))


@final
class XDeepFM(nn.Module):
    """Linear part + w CIN(x) + MLP([x_1 ... x_F, dense])."""

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
        cin: Sequence[int] = (64, 64),
        *,
        dropout: float = 0.0,
        batch_norm: bool = False,
        base_rate: float = 0.5,
        table: TableSettings | None = None,
        sizes: FieldSizes | None = None,
        dense_below: int | None = None,
    ) -> None:
        super().__init__()
        small = small_fields(fields, sizes, dense_below)
        self.dense = checked(dense)
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        self.linear = FirstOrder(fields, dense, table, base_rate, small)
        self.cin = CompressedInteraction(fields, cin)
        self.cin_output = Linear(self.cin.width, 1, bias=False)
        self.deep = Perceptron(fields * embedding_dim + dense, hidden, 1, dropout, batch_norm)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        rows = self.embeddings(ids)
        both = self.cin_output(self.cin(rows)) + self.deep(beside(rows, dense, self.dense))
        logits: Tensor = self.linear(ids, dense) + both.squeeze(1)
        return logits
