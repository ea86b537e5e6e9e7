"""Logistic regression."""

from typing import final

from torch import Tensor, nn

from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.first_order import FirstOrder
from flambeau.models.ctr.layers.table_settings import TableSettings


@final
class LR(nn.Module):
    """b + sum_i w_i x_i.

    `fields=None`: rows of any number of ids, each perhaps with a value, as in libsvm files.
    """

    def __init__(
        self,
        fields: int | None = 26,
        dense: int = 13,
        *,
        base_rate: float = 0.5,
        table: TableSettings | None = None,
    ) -> None:
        super().__init__()
        self.linear = FirstOrder(fields, dense, table, base_rate)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Logits. [rows]"""
        logits: Tensor = self.linear(ids, dense)
        return logits
