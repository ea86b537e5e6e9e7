"""Storage of rows in large pieces of memory that are added as needed and never moved."""

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, final

import numpy as np

#: The size of a huge page in bytes, so that little memory is reserved before rows use it.
SLAB_BYTES = 2 << 20
#: Larger, since each file needs a descriptor; files are sparse, so unused space costs nothing.
FILE_BYTES = 64 << 20
#: Slabs are cut from larger pieces of address space, for which the system provides huge pages.
REGION_BYTES = 64 << 20

#: Location of rows for kernels: the addresses of slabs, and the number of row bits within one.
Place = tuple[np.ndarray[Any, np.dtype[np.int64]], int]


def place_of(array: np.ndarray[Any, Any]) -> Place:
    """Return an array [rows, width] as if it were the only slab; the caller must keep it alive."""
    return np.array([array.ctypes.data]), 62


@final
class Slabs:
    """Rows of `width` numbers. Row r is in slab `r >> shift`, at `(r & (1 << shift) - 1)`.

    New rows are zero. With a `directory`, slabs are mapped from unnamed files in it, so that a
    table may be larger than memory; otherwise they are anonymous and request huge pages, which make
    lookups in large tables a third faster.
    """

    def __init__(self, width: int, dtype: Any, directory: Path | None = None) -> None:
        self.width, self.dtype = width, np.dtype(dtype)
        row_bytes = max(1, width * self.dtype.itemsize)
        slab_bytes = SLAB_BYTES if directory is None else FILE_BYTES
        self.shift = max(0, (slab_bytes // row_bytes).bit_length() - 1)
        self.addresses = np.empty(0, np.int64)
        self._directory = directory
        self._slabs: list[np.ndarray[Any, Any]] = []
        self._region: np.ndarray[Any, Any] = np.empty(0, np.uint8)

    @property
    def place(self) -> Place:
        """Location of the rows; valid until more rows are reserved."""
        return self.addresses, self.shift

    @property
    def rows(self) -> int:
        """Number of rows that fit into the existing slabs."""
        return int(len(self._slabs) << self.shift)

    @property
    def nbytes(self) -> int:
        """Memory reserved in bytes; the operating system provides it on first use."""
        return sum(slab.nbytes for slab in self._slabs)

    def reserve(self, rows: int) -> None:
        """Make room for rows 0 to `rows` - 1."""
        while self.rows < rows:
            self._slabs.append(self._new_slab())
        if len(self.addresses) != len(self._slabs):
            self.addresses = np.array([slab.ctypes.data for slab in self._slabs])

    def slab(self, number: int) -> np.ndarray[Any, Any]:
        """Return one slab as an array [rows, width], without a copy."""
        return self._slabs[number]

    def _new_slab(self) -> np.ndarray[Any, Any]:
        rows = 1 << self.shift
        size = max(1, rows * self.width * self.dtype.itemsize)
        memory = self._map_file(size) if self._directory is not None else self._cut(size)
        return np.frombuffer(memory, self.dtype, rows * self.width).reshape(rows, self.width)

    def _cut(self, size: int) -> np.ndarray[Any, Any]:
        if size > self._region.size:
            self._region = _map_anonymous(max(size, REGION_BYTES))
        piece, self._region = self._region[:size], self._region[size:]
        return piece

    def _map_file(self, size: int) -> mmap.mmap:
        with tempfile.TemporaryFile(dir=self._directory) as file:
            os.truncate(file.fileno(), size)
            return mmap.mmap(file.fileno(), size)


def _map_anonymous(size: int) -> np.ndarray[Any, Any]:
    """Return zeroed memory that starts on a huge page boundary."""
    # Private, because shared memory gets no huge pages.
    memory = mmap.mmap(-1, size + SLAB_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    return whole[-whole.ctypes.data % SLAB_BYTES :][:size]
