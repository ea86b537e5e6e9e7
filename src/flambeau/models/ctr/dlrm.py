"""DLRM (Naumov et al. 2019)."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.base_rate import begin_at
from flambeau.models.ctr.layers.dense_values import checked, ready
from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.pairs import inner_products, pair_count
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS, TableSettings, settings_of


@final
class DLRM(nn.Module):
    """MLP_top([z, <x_i, x_j> of all pairs i < j]), where z = MLP_bottom(dense) is one of the x.

    `bottom` are the layers before the last one, of `embedding_dim`; `top` those before the logit.
    With `dense=0` there is no z.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int = 26,
        dense: int = 13,
        embedding_dim: int = 16,
        bottom: Sequence[int] = (512, 256, 64),
        top: Sequence[int] = (512, 256),
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
        if fields == 1 and dense == 0:
            raise ModelError("fields=1 and dense=0: DLRM needs two vectors for a product")
        self.dense = checked(dense)
        self.embeddings = FieldEmbedding(
            fields, embedding_dim, small=small, **settings_of(EMBEDDINGS, table)
        )
        layers = (*bottom, embedding_dim)
        self.bottom = Perceptron(dense, layers, batch_norm=batch_norm) if dense else None
        width = pair_count(fields + 1) + embedding_dim if dense else pair_count(fields)
        self.top = Perceptron(width, top, 1, dropout, batch_norm)
        begin_at(base_rate, self.top.output_bias)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        rows = self.embeddings(ids)
        numbers = ready(dense, rows, self.dense)
        z = None if self.bottom is None else self.bottom(numbers)
        x = inner_products(rows, first=z)
        logits: Tensor = self.top(x).squeeze(1)
        return logits
