"""Embeddings of ids without fields: any number of them in a row, each optionally with a value."""

from typing import Any, Literal, final

from torch import Tensor, nn

from flambeau.config.tables import TableSpec
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.fields import Ids, as_rows


@final
class BagEmbedding(nn.Module):
    """Sums of table rows over all ids of a row, whichever column they come from.

    With `sum_and_squares`, the sum of the rows and the sum of their squares. Values of ids multiply
    their rows. Equal ids of different columns share a row.
    """

    def __init__(
        self,
        dim: int,
        name: str,
        pooling: Literal["sum", "sum_and_squares"] = "sum",
        **table: Any,
    ) -> None:
        super().__init__()
        if dim < 1:
            raise ModelError(f"embedding_dim={dim}: must be at least 1")
        # Loads Numba, which models without tables do not need.
        from flambeau.embeddings import SparseEmbedding

        self.rows = SparseEmbedding(TableSpec(name, dim, **table), pooling, prefetch="ids")

    def forward(self, ids: Ids) -> tuple[Tensor, ...]:
        """Return one tensor [rows, dim], or two of them."""
        found = self.rows(as_rows(ids) if isinstance(ids, Tensor) else ids)
        sums = found if isinstance(found, tuple) else (found,)
        return tuple(each.sum(1) if each.dim() == 3 else each for each in sums)
