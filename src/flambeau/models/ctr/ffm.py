"""Field-aware factorization machines (Juan et al. 2016)."""

from typing import final

from torch import Tensor, nn

from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class FFM(nn.Module):
    """Linear part + sum_{i<j} <v_{i,j} x_i, v_{j,i} x_j>: an id has a vector for each other field.

    The table "embeddings" is `fields * embedding_dim` wide, so keep `embedding_dim` small. Several
    ids of one field are summed, without products among them.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 4,
        *,
        base_rate: float = 0.5,
        table: TableSettings | None = None,
        sizes: FieldSizes | None = None,
        dense_below: int | None = None,
    ) -> None:
        super().__init__()
        small = small_fields(fields, sizes, dense_below)
        self.linear = FirstOrder(fields, dense, table, base_rate, small)
        self.fields, self.dim = fields, embedding_dim
        width = (fields or 0) * embedding_dim
        self.embeddings = FieldEmbedding(
            fields, width, small=small, **settings_of(EMBEDDINGS, table)
        )

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        # [rows, from, toward, dim]
        toward = self.embeddings(ids).unflatten(2, (self.fields, self.dim))
        own = toward.diagonal(dim1=1, dim2=2).square().sum((1, 2))
        both = (toward * toward.transpose(1, 2)).sum((1, 2, 3))
        logits: Tensor = self.linear(ids, dense) + 0.5 * (both - own)
        return logits
