"""FinalMLP (Mao et al. 2023)."""

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
class FeatureGate(nn.Module):
    """Gate 2 sigmoid(MLP(c)) * x; c are the rows of the fields `context`, else learnt."""

    def __init__(self, width: int, dim: int, context: Sequence[int], hidden: Sequence[int]) -> None:
        super().__init__()
        self.context = list(context)
        inputs = len(self.context) * dim or dim
        self.learnt = None if self.context else nn.Parameter(torch.empty(1, dim).uniform_(-1, 1))
        self.weigh = Perceptron(inputs, hidden, width)

    def forward(self, rows: Tensor, x: Tensor) -> Tensor:
        """Return `x` [rows, width], gated by the fields' rows [rows, fields, dim]."""
        context = rows[:, self.context].flatten(1) if self.learnt is None else self.learnt
        return 2 * torch.sigmoid(self.weigh(context)) * x


@final
class BilinearFusion(nn.Module):
    """b + w_1 u + w_2 v + sum_h u_h^T W_h v_h, where u_h and v_h are the parts of `heads`."""

    def __init__(self, first: int, second: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or first % heads or second % heads:
            raise ModelError(
                f"heads={heads}: must be at least 1 and divide the last layers' {first} and "
                f"{second}"
            )
        self.first, self.second = Linear(first, 1), Linear(second, 1, bias=False)
        shape = (heads, first // heads, second // heads)
        self.weights = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the fused outputs [rows] of `u` [rows, first] and `v` [rows, second]."""
        heads, size, _ = self.weights.shape
        parts = u.view(u.shape[0], heads, size).transpose(0, 1)  # [heads, rows, first / heads]
        met = torch.bmm(parts, self.weights).transpose(0, 1).flatten(1) * v
        alone: Tensor = self.first(u) + self.second(v)
        return alone.squeeze(1) + met.sum(1)


@final
class FinalMLP(nn.Module):
    """Two MLPs over [x_1 ... x_F, dense], each with its own gate, and a bilinear fusion.

    `contexts` are the fields that control each gate, such as those of the user and those of the
    item; without fields a gate is the same for all rows.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
        second: Sequence[int] = (800,),
        gate: Sequence[int] = (64,),
        contexts: tuple[Sequence[int], Sequence[int]] = ((), ()),
        heads: int = 2,
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
        if len(contexts) != 2 or any(not 0 <= f < fields for each in contexts for f in each):
            raise ModelError(f"contexts={contexts}: give two lists of fields, 0 to {fields - 1}")
        width = fields * embedding_dim + dense
        self.gates = nn.ModuleList(
            FeatureGate(width, embedding_dim, context, gate) for context in contexts
        )
        self.streams = nn.ModuleList(
            Perceptron(width, layers, dropout=dropout, batch_norm=batch_norm)
            for layers in (hidden, second)
        )
        ends = [(width, *layers)[-1] for layers in (hidden, second)]
        self.fusion = BilinearFusion(ends[0], ends[1], heads)
        begin_at(base_rate, self.fusion.first.bias)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        rows = self.embeddings(ids)
        x = beside(rows, dense, self.dense)
        u, v = (
            stream(gate(rows, x)) for gate, stream in zip(self.gates, self.streams, strict=True)
        )
        logits: Tensor = self.fusion(u, v)
        return logits
