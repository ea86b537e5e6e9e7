"""Product-based neural networks (Qu et al. 2016)."""

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.base_rate import begin_at
from flambeau.models.ctr.layers.dense_values import beside, checked
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.pairs import inner_products, pair_count
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of

Product = Literal["inner", "outer", "both"]


@final
class PNN(nn.Module):
    """MLP([x_1 ... x_F, products, dense]).

    `product="inner"`: <x_i, x_j> of all pairs i < j; `"outer"`: s s^T with s = sum_i x_i, the sum
    of the outer products of all pairs (the paper's superposition); `"both"`.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
        product: Product = "inner",
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
        if product not in ("inner", "outer", "both"):
            raise ModelError(f"product={product!r}: give 'inner', 'outer' or 'both'")
        self.dense = checked(dense)
        self.inner, self.outer = product != "outer", product != "inner"
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        products = self.inner * pair_count(fields) + self.outer * embedding_dim**2
        width = fields * embedding_dim + products + dense
        self.deep = Perceptron(width, hidden, 1, dropout, batch_norm)
        begin_at(base_rate, self.deep.output_bias)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        rows = self.embeddings(ids)
        parts = [rows.flatten(1)]
        if self.inner:
            parts.append(inner_products(rows))
        if self.outer:
            total = rows.sum(1)
            parts.append((total[:, :, None] * total[:, None]).flatten(1))
        x = beside(torch.cat(parts, dim=1), dense, self.dense)
        logits: Tensor = self.deep(x).squeeze(1)
        return logits
