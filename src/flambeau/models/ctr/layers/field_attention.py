"""A model with attention over fields."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.dense_values import beside, checked
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.self_attention import SelfAttention
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class FieldAttention(nn.Module):
    """Linear part + MLP([attention(x), dense]), with scaled attention of `heads` heads.

    `heads` must divide `embedding_dim`; each head has `embedding_dim / heads` numbers.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
        heads: int = 1,
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
        if heads < 1 or embedding_dim % heads:
            raise ModelError(
                f"heads={heads}: must be at least 1 and divide embedding_dim={embedding_dim}"
            )
        self.dense = checked(dense)
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        self.linear = FirstOrder(fields, dense, table, base_rate, small)
        self.attention = SelfAttention(
            embedding_dim, heads, embedding_dim // heads, scaled=True, dropout=dropout
        )
        self.deep = Perceptron(fields * embedding_dim + dense, hidden, 1, dropout, batch_norm)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        seen = self.attention(self.embeddings(ids))
        deep = self.deep(beside(seen, dense, self.dense)).squeeze(1)
        logits: Tensor = self.linear(ids, dense) + deep
        return logits
