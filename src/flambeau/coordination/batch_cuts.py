"""Cutting of rows into batches and of shards into pieces, without numpy."""

from collections.abc import Sequence
from typing import Literal

#: Whether to leave out rows that fill no batch; "when_possible": only if there are full batches.
DropLast = bool | Literal["when_possible"]


def drops(drop_last: DropLast, rows: int, batch_size: int) -> bool:
    """Return whether those of `rows` that do not fill a batch are left out."""
    return rows >= batch_size if drop_last == "when_possible" else drop_last


def shard_pieces(
    rows_per_shard: Sequence[int], batch_size: int, pieces: int, window: int | None
) -> list[list[tuple[int, int]]]:
    """Return the start and stop of the pieces of each shard, at least `pieces` in total.

    There are fewer only if there are fewer batches. A piece consists of whole batches, except the
    last one of a shard. If a piece has room for a `window` of rows (a multiple of the batch size),
    it consists of whole windows.
    """
    most = max(1, sum(rows_per_shard) // (pieces * batch_size)) * batch_size
    unit = batch_size if window is None or most < window else window
    most -= most % unit
    return [_cut(rows, most, unit) for rows in rows_per_shard]


def _cut(rows: int, most: int, unit: int) -> list[tuple[int, int]]:
    """Cut into pieces of about equal size: a multiple of `unit` and at most `most` rows."""
    count = max(1, -(-rows // most))
    size = -(-rows // (count * unit)) * unit
    return [(start, min(start + size, rows)) for start in range(0, rows, max(1, size))]
