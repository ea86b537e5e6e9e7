"""The inputs of a row other than its history: ids of fields and numbers, in one vector."""

from typing import Any, final

import torch
from torch import Tensor, nn

from flambeau.config.plural import number_of
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.fields import FieldEmbedding, Ids


@final
class FlatInputs(nn.Module):
    """Embeddings of the fields and the dense columns, concatenated to [rows, width].

    `width` is `fields * dim + dense`. The arguments are those of `FieldEmbedding`; ids of one field
    may be [rows]. `dense_name` is the name of the model's argument for numbers, for messages.
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        dim: int,
        name: str = "embeddings",
        prefetch: str = "ids",
        dense_name: str = "dense",
        **table: Any,
    ) -> None:
        super().__init__()
        if dense < 0:
            raise ModelError(f"{dense_name}={dense}: give the number of dense columns, 0 or more")
        self.embedding = FieldEmbedding(fields, dim, name, prefetch, **table)
        self.dense, self.width = dense, fields * dim + dense
        self._dense_name = dense_name

    def forward(self, ids: Ids, dense: Tensor | None = None) -> Tensor:
        """Return one vector for each row. [rows, width]"""
        if isinstance(ids, Tensor) and ids.dim() == 1:
            ids = ids[:, None]
        embedded = self.embedding(ids).flatten(1)
        numbers = self._numbers(dense)
        return embedded if numbers is None else torch.cat([embedded, numbers], dim=1)

    def _numbers(self, dense: Tensor | None) -> Tensor | None:
        if dense is not None and dense.dim() == 1:
            dense = dense[:, None]
        found = 0 if dense is None else dense.shape[1]
        if found != self.dense:
            raise ModelError(
                f"{self._dense_name}: the model was made for "
                f"{number_of(self.dense, 'dense column')}, and got {found}; make it with "
                f"{self._dense_name}={found}, or change inputs="
            )
        return dense
