"""Storage of a table: the index, and the data of each row."""

import tempfile
from pathlib import Path
from typing import Any, final

import numpy as np

from flambeau.config.tables import TableSpec
from flambeau.tables import row_kernels
from flambeau.tables.index.index import Index, Rows
from flambeau.tables.precision import COMPUTED, STORED
from flambeau.tables.slabs import Slabs

Array = np.ndarray[Any, Any]


@final
class Storage:
    """The index, and for each row its values, its optimizer's state and, with eviction, `seen`.

    `seen` is one uint32 per row: when or how often it was trained.
    """

    def __init__(self, spec: TableSpec, state_width: int, directory: Path | None) -> None:
        place = None
        if spec.storage == "mmap":
            place = directory or Path(tempfile.gettempdir())
        self.index = Index()
        self.values = Slabs(spec.dim, STORED[spec.dtype], place)
        self.state = Slabs(state_width, COMPUTED[spec.dtype], place)
        self.seen = None if spec.eviction is None else Slabs(1, np.uint32, place)

    @property
    def nbytes(self) -> int:
        """Memory of the index and the rows, in bytes."""
        return self.index.nbytes + sum(slabs.nbytes for slabs in self._columns())

    def reserve(self) -> None:
        """Make room for every row the index has given out."""
        for slabs in self._columns():
            slabs.reserve(self.index.rows_ever)

    def _columns(self) -> list[Slabs]:
        return [self.values, self.state, *([] if self.seen is None else [self.seen])]


def gather(
    slabs: Slabs, rows: Rows, default: Array | None = None, out: Array | None = None
) -> Array:
    """Return the contents of rows [n, width], copied (to `out` if given); `default` for -1."""
    if default is None:
        default = np.empty(slabs.width, slabs.dtype)
    if out is None:
        out = np.empty((rows.size, slabs.width), slabs.dtype)
    row_kernels.gather(rows, out, default, slabs.place)
    return out


def scatter(slabs: Slabs, rows: Rows, values: Array) -> None:
    """Write `values` [n, width] to rows."""
    row_kernels.scatter(rows, values, slabs.place)
