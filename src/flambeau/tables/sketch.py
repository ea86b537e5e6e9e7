"""Approximate counts of how often ids have appeared, in a fixed number of bytes."""

from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import AHEAD, inlined, kernel, prefetch
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids

#: Each id has one cell in each of this many equal parts of the sketch.
HASHES = 4

Counts = np.ndarray[Any, np.dtype[np.uint8]]

_SALT = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_MOST = np.uint8(255)
_ONE = np.uint8(1)


@final
class CountMinSketch:
    """Count-min sketch of counts up to 255: never too low, too high only if ids share all cells."""

    def __init__(self, cells: int) -> None:
        self.cells = np.zeros((HASHES, cells // HASHES), np.uint8)

    def estimate(self, ids: Ids) -> Counts:
        """Return how often each id was added. Changes nothing."""
        out = np.empty(ids.size, np.uint8)
        _estimate(ids, self.cells, out)
        return out

    def add(self, ids: Ids) -> Counts:
        """Add 1 to the count of each of these distinct ids, in any order; return the new counts."""
        counts = self.estimate(ids)
        _raise_above(ids, self.cells, counts)
        return counts

    def merge(self, cells: np.ndarray[Any, Any]) -> None:
        """Include the counts of another sketch of the same size, which counted other ids."""
        np.maximum(self.cells, cells, out=self.cells)


@inlined
def _first(wanted: Any) -> Any:
    return mix(np.uint64(wanted) ^ _SALT)


@inlined
def _cell(bits: Any, lane: Any, width: Any) -> Any:
    """Return the cell of a lane; all lanes share one hash, whose halves are start and stride."""
    both = bits + np.uint64(lane) * ((bits << _HALF) | np.uint64(1))
    return np.int64(((both >> _HALF) * np.uint64(width)) >> _HALF)


@inlined
def _prefetch_cells(wanted: Any, i: Any, cells: Any) -> Any:
    if i < wanted.size:
        bits = _first(wanted[i])
        for lane in range(HASHES):
            width = cells.shape[1]
            prefetch(cells.ctypes.data + lane * width + _cell(bits, lane, width))


@kernel
def _estimate(wanted: Any, cells: Any, out: Any) -> None:
    for i in range(wanted.size):
        _prefetch_cells(wanted, i + AHEAD, cells)
        bits = _first(wanted[i])
        least = _MOST
        for lane in range(HASHES):
            least = min(least, cells[lane, _cell(bits, lane, cells.shape[1])])
        out[i] = least


@kernel
def _raise_above(wanted: Any, cells: Any, counts: Any) -> None:
    """Raise each id's count by one, up to 255, changing only the cells that are below it."""
    for i in range(wanted.size):
        _prefetch_cells(wanted, i + AHEAD, cells)
        bits = _first(wanted[i])
        if counts[i] < _MOST:
            counts[i] += _ONE
        for lane in range(HASHES):
            position = _cell(bits, lane, cells.shape[1])
            cells[lane, position] = max(cells[lane, position], counts[i])
