"""What memory gives: rows of one plain tensor in this process, without an index or a message.

bare_rows.py < settings: rows
"""

from typing import final

import torch
from asking import answer_all, settings
from rows import BATCH_ROWS, DIM, FEW_ROWS, Requests, RowClient, batches


@final
class BareRows(RowClient):
    """A tensor of rows, and room for those of a batch."""

    def __init__(self, rows: int) -> None:
        self._values = torch.zeros(rows, DIM).add_(1)  # zeroes alone would take no memory
        self._batches = [torch.from_numpy(batch) for batch in batches(rows, seed=0)]
        self._out = torch.empty(BATCH_ROWS, DIM)

    def begin_pull(self, batch: int, *, few: bool = False) -> None:
        """See `RowClient`."""
        count = FEW_ROWS if few else BATCH_ROWS
        out = self._out[:count]
        torch.index_select(self._values, 0, self._batches[batch][:count], out=out)

    def finish_pull(self, pending: None) -> None:
        """See `RowClient`."""

    def begin_push(self, batch: int) -> None:
        """See `RowClient`."""
        raise NotImplementedError("rows are only read")

    def finish_push(self, pending: None) -> None:
        """See `RowClient`."""


def main(rows: int) -> None:
    answer_all(Requests(BareRows(rows)).answer)


if __name__ == "__main__":
    main(**settings())
