"""Attentional factorization machines (Xiao et al. 2017)."""

from typing import final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.linear import Linear
from flambeau.models.ctr.layers.pairs import element_products
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class AFM(nn.Module):
    """Linear part + p^T sum_{i<j} a_ij (x_i * x_j), where * is element-wise.

    a = softmax over all pairs of h^T ReLU(W (x_i * x_j) + b), with `attention` rows in W. `dropout`
    applies to the weighted sum.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        attention: int = 16,
        *,
        dropout: float = 0.0,
        base_rate: float = 0.5,
        table: TableSettings | None = None,
        sizes: FieldSizes | None = None,
        dense_below: int | None = None,
    ) -> None:
        super().__init__()
        small = small_fields(fields, sizes, dense_below)
        if fields == 1 or attention < 1:
            raise ModelError(
                f"fields={fields} and attention={attention}: AFM needs two fields for a pair, and "
                "an attention of at least 1"
            )
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        self.linear = FirstOrder(fields, dense, table, base_rate, small)
        self.attention = Linear(embedding_dim, attention)
        self.score = Linear(attention, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Parameter(torch.ones(embedding_dim))

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        products = element_products(self.embeddings(ids))
        scores = self.score(torch.relu(self.attention(products)))
        weighted = torch.softmax(scores, dim=1).transpose(1, 2) @ products  # [rows, 1, dim]
        pairs = self.dropout(weighted.squeeze(1)) @ self.output
        logits: Tensor = self.linear(ids, dense) + pairs
        return logits
