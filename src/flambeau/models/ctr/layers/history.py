"""Histories: the items that a row's user interacted with before, the oldest first."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from flambeau.config.tables import TableSpec
from flambeau.data.jagged import Jagged, from_rows
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.fields import Ids


@final
class HistoryEmbedding(nn.Module):
    """Rows of the items' table for histories, padded, with a mask.

    A history is a `Jagged` of one bag in a row, or a tensor [rows, length], in which the id
    `padding` marks empty places. Only the last `length` items count. `prefetch` is the name of the
    model's `forward` argument with the histories.
    """

    def __init__(
        self,
        items: TableSpec,
        length: int | None = None,
        padding: int | None = None,
        prefetch: str = "history",
    ) -> None:
        super().__init__()
        if length is not None and length < 1:
            raise ModelError(f"length={length}: a history needs room for at least 1 item")
        # Loads Numba, which models without tables do not need.
        from flambeau.embeddings import SparseEmbedding

        self.length, self.padding = length, padding
        self.rows = SparseEmbedding(items, "none", prefetch=prefetch)

    def forward(self, history: Ids) -> tuple[Tensor, Tensor]:
        """Return rows [rows, longest, dim], zero-padded, and their mask [rows, longest]."""
        from flambeau.embeddings import SparseEmbedding

        bags = history if isinstance(history, Jagged) else from_rows(history)
        if bags.width != 1:
            raise ModelError(
                f"a row has {bags.width} histories; give one column (several are joined when the "
                "data is written)"
            )
        if self.padding is not None:
            bags = without(bags, self.padding)
        # The graph of an export receives the rows of whole histories, and looks nothing up.
        looks_up = isinstance(self.rows, SparseEmbedding)
        if self.length is not None and looks_up:
            bags = newest(bags, self.length)
        rows, mask = self.rows(bags.plain())
        if self.length is not None and not looks_up:
            rows, mask = newest_rows(rows, mask, self.length)
        return rows, mask


def without(bags: Jagged, id: int) -> Jagged:
    """Return the bags without one id."""
    kept = bags.ids != id
    return bags if bool(kept.all()) else _kept(bags, kept)


def newest(bags: Jagged, length: int) -> Jagged:
    """Return the last `length` ids of each bag."""
    if not len(bags.ids) or int(bags.lengths.max()) <= length:
        return bags
    ends = torch.repeat_interleave(bags.offsets[1:], bags.lengths)
    places = torch.arange(len(bags.ids), device=ends.device)
    return _kept(bags, places >= ends - length)


def newest_rows(rows: Tensor, mask: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the last `length` of padded rows [rows, longest, dim], and their mask."""
    lengths = mask.sum(dim=1, keepdim=True)
    places = (lengths - length).clamp(min=0) + torch.arange(length, device=mask.device)
    # Add a row of zeros behind the longest, for items that are missing.
    rows = pad(rows, (0, 0, 0, 1))
    found = torch.minimum(places, lengths)[:, :, None].expand(-1, -1, rows.shape[2])
    return rows.gather(1, found), places < lengths


def _kept(bags: Jagged, kept: Tensor) -> Jagged:
    before = torch.zeros(len(kept) + 1, dtype=torch.int64, device=kept.device)
    torch.cumsum(kept, 0, out=before[1:])
    return Jagged(bags.ids[kept], before[bags.offsets])


@final
class ItemEmbedding(nn.Module):
    """Rows of the items' table for the items themselves.

    Tensors [rows] or [rows, candidates] give one row per item; a `Jagged` gives the sum of each
    bag, and zeros for a missing item.
    """

    def __init__(self, items: TableSpec, prefetch: str = "item") -> None:
        super().__init__()
        from flambeau.embeddings import SparseEmbedding

        self.each = SparseEmbedding(items, "none", prefetch=prefetch)
        self.sums = SparseEmbedding(items, "sum")

    def forward(self, item: Ids) -> Tensor:
        """Return rows [*item.shape, dim]; [rows, dim] for a `Jagged`."""
        found: Tensor = self.sums(item) if isinstance(item, Jagged) else self.each(item)
        return found
