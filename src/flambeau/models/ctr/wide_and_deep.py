"""Wide & Deep (Cheng et al. 2016)."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from flambeau.models.ctr.layers.dense_values import beside, checked
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class WideAndDeep(nn.Module):
    """Linear part + MLP([x_1 ... x_F, dense]).

    Crossed columns for the wide part are created by `crosses=` of the job, as further fields.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
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
        self.dense = checked(dense)
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        self.wide = FirstOrder(fields, dense, table, base_rate, small)
        self.deep = Perceptron(fields * embedding_dim + dense, hidden, 1, dropout, batch_norm)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        x = beside(self.embeddings(ids), dense, self.dense)
        logits: Tensor = self.wide(ids, dense) + self.deep(x).squeeze(1)
        return logits
