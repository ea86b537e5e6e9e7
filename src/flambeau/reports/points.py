"""Numbers over time, thinned to a fixed size without losing extremes."""

from typing import Any, final

import msgspec
import numpy as np

Array = np.ndarray[Any, Any]

#: When there are more than twice this number of buckets, pairs are merged.
BUCKETS = 500
#: Number of points that are put into buckets together.
_PENDING = 512


@final
class Thinned(msgspec.Struct, frozen=True):
    """One number over time, with an entry for each bucket, or for each point if there are few.

    `elapsed` (seconds) and `steps` are those of a bucket's last point.
    """

    elapsed: Array
    steps: Array
    lows: Array
    highs: Array
    means: Array

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def is_thinned(self) -> bool:
        """Return whether an entry may stand for several points."""
        return bool((self.lows < self.highs).any())


@final
class Points(msgspec.Struct):
    """Several numbers (`names`) at points in time.

    A bucket is a row: elapsed seconds, step, and the least number, the greatest number, the sum and
    the count of each name. Numbers that are not finite are ignored.
    """

    names: list[str]
    buckets: Array = msgspec.field(default_factory=lambda: np.zeros((0, 0)))
    points_per_bucket: int = 1
    count: int = 0
    #: Elapsed seconds, step and numbers.
    pending: list[tuple[float, ...]] = []

    def add(self, elapsed: float, step: float, *numbers: float) -> None:
        """Add a point."""
        self.count += 1
        self.pending.append((elapsed, step, *numbers))
        if len(self.pending) >= _PENDING:
            self.buckets = self._with_pending()
            self.pending = []
            while len(self.buckets) > 2 * BUCKETS:
                self.buckets = _halved(self.buckets)
                self.points_per_bucket *= 2

    def thinned(self, name: str) -> Thinned:
        """Return the thinned points of one of the numbers."""
        rows, width = self._with_pending(), len(self.names)
        place = 2 + self.names.index(name)
        lows, highs, sums, counts = (rows[:, place + part * width] for part in range(4))
        known = counts > 0
        means = sums[known] / counts[known]
        return Thinned(rows[known, 0], rows[known, 1], lows[known], highs[known], means)

    def _with_pending(self) -> Array:
        """Return all buckets, including those of the pending points."""
        width = len(self.names)
        rows = self.buckets.reshape(-1, 2 + 4 * width)
        if not self.pending:
            return rows
        new = np.array(self.pending, np.float64)
        starts = np.arange(0, len(new), self.points_per_bucket)
        ends = np.append(starts[1:], len(new)) - 1
        numbers = new[:, 2:]
        numbers[~np.isfinite(numbers)] = np.nan
        added = (
            new[ends, :2],
            np.fmin.reduceat(numbers, starts),
            np.fmax.reduceat(numbers, starts),
            np.add.reduceat(np.nan_to_num(numbers), starts),
            np.add.reduceat((~np.isnan(numbers)).astype(np.float64), starts),
        )
        return np.concatenate([rows, np.concatenate(added, axis=1)])


def _halved(rows: Array) -> Array:
    """Merge pairs of neighbouring buckets; an odd last bucket stays as it is."""
    width = (rows.shape[1] - 2) // 4
    pairs = len(rows) // 2 * 2
    first, second = rows[:pairs:2], rows[1:pairs:2]
    low, high, sums = 2 + width, 2 + 2 * width, 2 + 2 * width
    joined = (
        second[:, :2],
        np.fmin(first[:, 2:low], second[:, 2:low]),
        np.fmax(first[:, low:high], second[:, low:high]),
        first[:, sums:] + second[:, sums:],
    )
    return np.concatenate([np.concatenate(joined, axis=1), rows[pairs:]])
