"""AutoInt (Song et al. 2019)."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.base_rate import begin_at
from flambeau.models.ctr.layers.dense_values import DenseVectors, beside, checked
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.linear import Linear
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.self_attention import SelfAttention
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class AutoInt(nn.Module):
    """w attention^L(x) + b, where each dense value is a further field: its value times a vector.

    Each of `layers` has `heads` of `head_dim` numbers. With `hidden`, MLP([x_1 ... x_F, dense]) is
    added, which the paper calls AutoInt+; `hidden=()` omits it.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        layers: int = 3,
        heads: int = 2,
        head_dim: int = 16,
        hidden: Sequence[int] = (400, 400),
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
        if layers < 1:
            raise ModelError(f"layers={layers}: must be at least 1")
        self.dense = checked(dense)
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        self.dense_vectors = DenseVectors(dense, embedding_dim) if dense else None
        widths = [embedding_dim, *[heads * head_dim] * (layers - 1)]
        self.attention = nn.Sequential(
            *(SelfAttention(width, heads, head_dim, scaled=False) for width in widths)
        )
        self.output = Linear((fields + dense) * heads * head_dim, 1)
        width = fields * embedding_dim + dense
        self.deep = Perceptron(width, hidden, 1, dropout, batch_norm) if hidden else None
        begin_at(base_rate, self.output.bias)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        rows = self.embeddings(ids)
        flat = beside(rows, dense, self.dense)
        x = rows if self.dense_vectors is None else self.dense_vectors(rows, dense)
        logits: Tensor = self.output(self.attention(x).flatten(1)).squeeze(1)
        return logits if self.deep is None else logits + self.deep(flat).squeeze(1)
