"""Factorization machines (Rendle 2010)."""

from typing import final

from torch import Tensor, nn

from flambeau.models.ctr.layers.bags import BagEmbedding
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.pairs import half_difference, sum_of_products
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class FM(nn.Module):
    """Linear part + sum_{i<j} <v_i x_i, v_j x_j>.

    With `fields`, i and j are fields, each with the sum of its ids. With `fields=None`, they are
    the ids of a row, of which there may be any number, each optionally with a value, as in libsvm
    files.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int | None = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        *,
        base_rate: float = 0.5,
        table: TableSettings | None = None,
        sizes: FieldSizes | None = None,
        dense_below: int | None = None,
    ) -> None:
        super().__init__()
        small = small_fields(fields, sizes, dense_below)
        self.linear = FirstOrder(fields, dense, table, base_rate, small)
        settings = settings_of(EMBEDDINGS, table)
        self.embeddings = (
            FieldEmbedding(fields, embedding_dim, small=small, **settings)
            if fields
            else BagEmbedding(embedding_dim, EMBEDDINGS, "sum_and_squares", **settings)
        )

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        found = self.embeddings(ids)
        pairs = sum_of_products(found) if isinstance(found, Tensor) else half_difference(*found)
        logits: Tensor = self.linear(ids, dense) + pairs
        return logits
