"""DCN V2 (Wang et al. 2021)."""

from collections.abc import Sequence
from typing import Literal, final

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
class MatrixCross(nn.Module):
    """Cross network x_{l+1} = x_0 * (W_l x_l + b_l) + x_l; with `rank`, W_l = U_l V_l."""

    def __init__(self, width: int, layers: int, rank: int | None = None) -> None:
        super().__init__()
        if layers < 1:
            raise ModelError(f"cross_layers={layers}: must be at least 1")
        if rank is not None and rank < 1:
            raise ModelError(f"rank={rank}: must be at least 1, or None for full matrices")
        self.layers = nn.ModuleList(_matrix(width, rank) for _ in range(layers))

    def forward(self, x0: Tensor) -> Tensor:
        """Return the crossed vectors [rows, width] of `x0` [rows, width]."""
        x = x0
        for matrix in self.layers:
            x = torch.addcmul(x, x0, matrix(x))
        return x


def _matrix(width: int, rank: int | None) -> nn.Module:
    if rank is None:
        return Linear(width, width)
    return nn.Sequential(Linear(width, rank, bias=False), Linear(rank, width))


@final
class DCNv2(nn.Module):
    """Cross network, with an MLP beside it or on top of it, over x_0 = [x_1 ... x_F, dense].

    `structure="parallel"`: w [cross(x_0), MLP(x_0)] + b; `"stacked"`: w MLP(cross(x_0)) + b.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
        cross_layers: int = 2,
        rank: int | None = None,
        structure: Literal["parallel", "stacked"] = "parallel",
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
        if structure not in ("parallel", "stacked"):
            raise ModelError(f"structure={structure!r}: give 'parallel' or 'stacked'")
        self.dense, self.structure = checked(dense), structure
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        width = fields * embedding_dim + dense
        self.cross = MatrixCross(width, cross_layers, rank)
        self.deep = Perceptron(width, hidden, dropout=dropout, batch_norm=batch_norm)
        crossed = width if structure == "parallel" else 0
        self.output = Linear(crossed + self.deep.width, 1)
        begin_at(base_rate, self.output.bias)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        x0 = beside(self.embeddings(ids), dense, self.dense)
        crossed = self.cross(x0)
        if self.structure == "parallel":
            found = torch.cat([crossed, self.deep(x0)], dim=1)
        else:
            found = self.deep(crossed)
        logits: Tensor = self.output(found).squeeze(1)
        return logits
