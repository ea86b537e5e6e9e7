"""Logistic regression."""

from typing import final

from torch import Tensor, nn

from flambeau.models.ctr.layers.field_sizes import FieldSizes, small_fields
from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.table_settings import TableSettings


@final
class LR(nn.Module):
    """Logistic regression b + sum_i w_i x_i.

    With `fields=None`, a row has any number of ids, each optionally with a value, as in libsvm
    files.
    """

    default_loss = "bce"

    def __init__(
        self,
        fields: int | None = 26,
        dense: int = 13,
        *,
        base_rate: float = 0.5,
        table: TableSettings | None = None,
        sizes: FieldSizes | None = None,
        dense_below: int | None = None,
    ) -> None:
        super().__init__()
        small = small_fields(fields, sizes, dense_below)
        self.linear = FirstOrder(fields, dense, table, base_rate, small)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return logits [rows]."""
        logits: Tensor = self.linear(ids, dense)
        return logits
