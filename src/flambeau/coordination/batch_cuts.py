"""How rows are cut into batches, and shards into pieces; without numpy, as the driver is."""

from collections.abc import Sequence
from typing import Literal

#: Whether rows that fill no batch are left out; "when_possible": if there are others.
DropLast = bool | Literal["when_possible"]


def drops(drop_last: DropLast, rows: int, batch_size: int) -> bool:
    """Whether those of `rows` that fill no batch are left out."""
    return rows >= batch_size if drop_last == "when_possible" else drop_last


def shard_pieces(
    rows_per_shard: Sequence[int], batch_size: int, pieces: int, window: int | None
) -> list[list[tuple[int, int]]]:
    """Return where the pieces of each shard start and stop: at least `pieces` together.

    There are fewer only if there are fewer batches: pieces have whole batches, up to the shard's
    last. Pieces with room for a `window` of rows (a whole number of batches) have whole windows.
    """
    most = max(1, sum(rows_per_shard) // (pieces * batch_size)) * batch_size
    unit = batch_size if window is None or most < window else window
    most -= most % unit
    return [_cut(rows, most, unit) for rows in rows_per_shard]


def _cut(rows: int, most: int, unit: int) -> list[tuple[int, int]]:
    """Cut into pieces of about the same size, a multiple of `unit` and no more than `most`."""
    count = max(1, -(-rows // most))
    size = -(-rows // (count * unit)) * unit
    return [(start, min(start + size, rows)) for start in range(0, rows, max(1, size))]
