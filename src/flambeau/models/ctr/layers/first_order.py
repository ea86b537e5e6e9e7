"""The part of a model that is linear in ids and numbers."""

from typing import final

import torch
from torch import Tensor, nn

from flambeau.embeddings.small_fields import SmallFields
from flambeau.models.ctr.layers.bags import BagEmbedding
from flambeau.models.ctr.layers.base_rate import begin_at
from flambeau.models.ctr.layers.dense_values import checked, ready
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids
from flambeau.models.ctr.layers.table_settings import LINEAR, TableSettings, settings_of


@final
class FirstOrder(nn.Module):
    """Bias, a weight for each id (table "linear") and one for each dense value.

    All weights start at zero, and the bias at the logit of `base_rate`. Without `fields`, a row has
    any number of ids.
    """

    def __init__(
        self,
        fields: int | None = 26,
        dense: int = 13,
        table: TableSettings | None = None,
        base_rate: float = 0.5,
        small: SmallFields | None = None,
    ) -> None:
        super().__init__()
        settings = settings_of(LINEAR, table)
        self.ids = (
            FieldEmbedding(fields, 1, LINEAR, small=small, **settings)
            if fields
            else BagEmbedding(1, LINEAR, **settings)
        )
        self.dense = checked(dense)
        self.bias = nn.Parameter(torch.empty(1))
        begin_at(base_rate, self.bias)
        self.weight = nn.Parameter(torch.zeros(dense)) if dense else None

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return b + sum_i w_i x_i. [rows]"""
        found = self.ids(ids)
        weights = found if isinstance(found, Tensor) else found[0]
        out = weights.flatten(1).sum(1) + self.bias
        numbers = ready(dense, out, self.dense)
        return out if self.weight is None else out + numbers @ self.weight
