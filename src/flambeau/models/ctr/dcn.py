"""Deep & Cross (Wang et al. 2017)."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.base_rate import begin_at
from flambeau.models.ctr.layers.dense_values import beside, checked
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.linear import Linear
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class VectorCross(nn.Module):
    """Cross network x_{l+1} = x_0 <x_l, w_l> + b_l + x_l, of `layers` layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        if layers < 1:
            raise ModelError(f"cross_layers={layers}: must be at least 1")
        bound = width**-0.5
        self.weights = nn.Parameter(torch.empty(layers, width).uniform_(-bound, bound))
        self.biases = nn.Parameter(torch.zeros(layers, width))

    def forward(self, x0: Tensor) -> Tensor:
        """Return the crossed vectors [rows, width] of `x0` [rows, width]."""
        x = x0
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = torch.addcmul(x + bias, x0, (x @ weight)[:, None])
        return x


@final
class DCN(nn.Module):
    """w [cross(x_0), MLP(x_0)] + b with x_0 = [x_1 ... x_F, dense]."""

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
        cross_layers: int = 3,
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
        width = fields * embedding_dim + dense
        self.cross = VectorCross(width, cross_layers)
        self.deep = Perceptron(width, hidden, dropout=dropout, batch_norm=batch_norm)
        self.output = Linear(width + self.deep.width, 1)
        begin_at(base_rate, self.output.bias)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        x0 = beside(self.embeddings(ids), dense, self.dense)
        both = torch.cat([self.cross(x0), self.deep(x0)], dim=1)
        logits: Tensor = self.output(both).squeeze(1)
        return logits
