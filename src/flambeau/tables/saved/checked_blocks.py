"""Blocks of a mapped table file, compared with their checksums before they are used."""

import mmap
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from flambeau.errors import CheckpointError
from flambeau.kernels.compiled import kernel
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Rows
from flambeau.tables.saved.checksums import BLOCK, CHECKSUMS, count_blocks
from flambeau.tables.saved.table_layout import Region

Array = np.ndarray[Any, Any]

#: Files up to this size in bytes are checked completely when they are opened.
WHOLE = 256_000_000

_SHIFT = BLOCK.bit_length() - 1
_AT_ONCE = 1024


@final
class CheckedBlocks:
    """Record of which blocks of a file have been compared with their checksums.

    `marks` has a byte for each block, 1 if it is intact. The blocks of a tensor start at `first` of
    its name. Kernels read marks and report the blocks that have none yet; see `settle`. Any number
    of threads may check at the same time. All blocks of a file written without checksums count as
    intact.
    """

    def __init__(
        self,
        path: Path,
        memory: mmap.mmap,
        regions: Mapping[str, Region],
        remedy: Callable[[], str],
    ) -> None:
        self._path, self._memory, self._remedy = path, memory, remedy
        covered = {name: region for name, region in regions.items() if name != CHECKSUMS}
        self._regions = dict(sorted(covered.items(), key=lambda item: item[1].start))
        counts = [count_blocks(region.stop - region.start) for region in self._regions.values()]
        firsts = np.cumsum([0, *counts])
        self._firsts = firsts[:-1]
        self.first = dict(zip(self._regions, self._firsts.tolist(), strict=True))
        self.known = CHECKSUMS in regions
        self._complete = not self.known
        self.marks = np.full(firsts[-1], not self.known, np.uint8)
        if self.known:
            self._sums = self._read_sums(regions[CHECKSUMS])

    def require_all(self) -> None:
        """Check all blocks; raise `CheckpointError` if one is corrupt."""
        self._require(np.arange(self.marks.size))
        self._complete = True

    def mark_all(self) -> None:
        """Record that the whole file was checked in another way."""
        self.marks[:] = 1
        self._complete = True

    def require(self, name: str, rows: Rows | slice) -> None:
        """Check the blocks that hold these rows of a tensor, unless they were checked before."""
        if self._complete:
            return
        region, first = self._regions[name], self.first[name]
        width = region.row(1) - region.start
        if isinstance(rows, slice):
            last = region.shape[0] if rows.stop is None else rows.stop
            start, stop = (rows.start or 0) * width, last * width
            self._require(first + np.arange(start >> _SHIFT, count_blocks(stop)))
        elif width:
            self.settle(lambda fresh: _unchecked(rows, width, first, self.marks, fresh))

    def settle(self, walk: Callable[[Array], int]) -> int:
        """Call `walk` until it meets no unchecked block; return its last result.

        `walk` writes the numbers of unchecked blocks into its argument and returns how many it
        wrote.
        """
        fresh = np.empty(_AT_ONCE, np.int64)
        while (count := walk(fresh)) > 0:
            self._require(np.unique(fresh[:count]))
        return count

    def search(self, name: str, wanted: Ids) -> Rows:
        """Return the position of each id in a tensor of ascending ids, -1 if it is not in it."""
        ordered, out = self._regions[name].view(self._memory), np.empty(wanted.size, np.int64)
        wanted, first = np.ascontiguousarray(wanted, np.int64), self.first[name]
        self.settle(lambda fresh: _search(ordered, wanted, out, first, self.marks, fresh))
        return out

    def _require(self, blocks: Array) -> None:
        for block in blocks[self.marks[blocks] == 0].tolist():
            name, start, stop = self._place(block)
            with memoryview(self._memory) as memory, memory[start:stop] as data:
                sound = zlib.crc32(data) == self._sums[1 + block]
            if not sound:
                raise CheckpointError(
                    f"{self._path} is corrupt: bytes {start} to {stop - 1}, in '{name}', are not "
                    f"what was written there; {self._remedy()}"
                )
            self.marks[block] = 1

    def _place(self, block: int) -> tuple[str, int, int]:
        """Return the tensor of a block, its first byte, and the byte after its last."""
        number = int(np.searchsorted(self._firsts, block, "right")) - 1
        # Tensors without bytes share their first block with the next tensor; the last one owns it.
        name = list(self._regions)[number]
        start = self._regions[name].start + (block - self.first[name]) * BLOCK
        return name, start, min(start + BLOCK, self._regions[name].stop)

    def _read_sums(self, region: Region) -> Array:
        if (region.dtype, region.shape) != ("I64", (1 + self.marks.size,)):
            raise CheckpointError(
                f"{self._path} is corrupt: it has checksums for another number of blocks; "
                f"{self._remedy()}"
            )
        sums = region.view(self._memory)
        length = 8 + int.from_bytes(self._memory[:8], "little")
        if zlib.crc32(self._memory[:length]) != sums[0]:
            raise CheckpointError(
                f"{self._path} is corrupt: its header, bytes 0 to {length - 1}, is not what was "
                f"written there; {self._remedy()}"
            )
        return sums


@kernel
def _unchecked(rows: Any, width: int, first: int, marks: Any, fresh: Any) -> int:
    count = 0
    for i in range(rows.size):
        begin = rows[i] * width
        for block in range(first + (begin >> _SHIFT), first + ((begin + width - 1) >> _SHIFT) + 1):
            if not marks[block]:
                fresh[count] = block
                count += 1
                if count == fresh.size:
                    return count
    return count


@kernel
def _search(ordered: Any, wanted: Any, out: Any, first: int, marks: Any, fresh: Any) -> int:
    count = 0
    for i in range(wanted.size):
        low, high = 0, ordered.size
        out[i] = -1
        while low < high:
            middle = (low + high) >> 1
            block = first + (middle * 8 >> _SHIFT)
            if not marks[block]:
                fresh[count] = block
                count += 1
                if count == fresh.size:
                    return count
            found = ordered[middle]
            if found == wanted[i]:
                out[i] = middle
                break
            if found < wanted[i]:
                low = middle + 1
            else:
                high = middle
    return count
