"""Small tables inside a graph: sorted ids and a matrix."""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from flambeau.data.jagged import Jagged
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError
from flambeau.inference.lookup_calls import field_salts
from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]

#: Id that stands for a missing one in a graph, by the type of ids; no real id has this value.
MISSING = {torch.int64: -0x61C8864680B583EB, torch.int32: -0x61C88647}


@final
class InsideTable(nn.Module):
    """Lookup as in the embedding `rows`, with operations that all graph formats support.

    `ids` [n] are ascending, `values` [n, dim] are their rows. All other ids have the row `default`
    [dim], and a missing one has zeros. With `unrolled`, the search is written out for formats that
    have no search operation.
    """

    def __init__(
        self, rows: SparseEmbedding, ids: Ids, values: Array, default: Array, *, unrolled: bool
    ) -> None:
        super().__init__()
        self.ids: Tensor
        self.values: Tensor
        self.salts: Tensor | None
        self.pooling, self.unrolled = rows.pooling, unrolled
        fields = rows.fields
        self.register_buffer("ids", torch.from_numpy(ids.copy()))
        whole = np.concatenate([values, default[None]]).astype(default.dtype)
        self.register_buffer("values", torch.from_numpy(whole))
        places = None if rows.only is None else torch.tensor(rows.only)
        self.places: Tensor | None
        self.register_buffer("places", places)
        salts = torch.tensor(field_salts(fields), dtype=torch.int64) if fields else None
        self.register_buffer("salts", salts if salts is None or places is None else salts[places])
        self.count = len(ids)

    def forward(self, ids: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Return the rows of ids [...]: [..., dim], or pooled over the last dimension."""
        if isinstance(ids, Jagged):
            raise ModelError("a graph cannot look jagged ids up itself; use inside_mb=0")
        if self.places is not None:
            ids = ids.index_select(-1, self.places)
        missing = MISSING.get(ids.dtype)
        there = None if missing is None else (ids != missing)[..., None]
        ids = ids.long()
        if self.salts is not None:
            ids = ids ^ self.salts
        found = self.values[self._places(ids)]
        if there is not None:
            found = torch.where(there, found, torch.zeros_like(found))
        if self.pooling == "none" or self.salts is not None:
            return found
        if self.pooling == "max":
            return found.amax(dim=-2)
        if self.pooling == "sum_and_squares":
            return found.sum(dim=-2), found.square().sum(dim=-2)
        return found.sum(dim=-2) if self.pooling == "sum" else found.mean(dim=-2)

    def _places(self, ids: Tensor) -> Tensor:
        if not self.count:
            return torch.zeros_like(ids)
        near = self._unrolled(ids) if self.unrolled else torch.searchsorted(self.ids, ids)
        near = near.clamp(max=self.count - 1)
        return torch.where(self.ids[near] == ids, near, self.count)

    def _unrolled(self, ids: Tensor) -> Tensor:
        """Return the number of sorted ids that are smaller, by binary search."""
        below = torch.zeros_like(ids)
        step = 1 << (self.count.bit_length() - 1)
        while step:
            tried = below + step
            smaller = self.ids[(tried - 1).clamp(max=self.count - 1)] < ids
            below = torch.where((tried <= self.count) & smaller, tried, below)
            step >>= 1
        return below
