"""Columns in memory-mapped storage, shared by all workers of a machine."""

import mmap
import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from flambeau.config import ArrayData, ArrayRef
from flambeau.data.batch import Batch
from flambeau.data.source import IndexedSource
from flambeau.data.sources.mapping import map_descriptor, map_file
from flambeau.errors import DataError

#: Mapped as int64 with the same bits, since torch cannot select rows of uint64.
UNSIGNED = "uint64"


@final
class ArraySource(IndexedSource):
    """Rows of mapped arrays; taking rows copies them, so the caller may change them in place."""

    def __init__(self, data: ArrayData) -> None:
        self._data = data
        self._columns = {name: _map(name, ref) for name, ref in data.columns.items()}
        self.positional = data.inputs
        self.labels = data.labels
        # Shared arrays have just been written and are in memory; the user's own file may not be.
        self.in_memory = all(ref.path is None for ref in data.columns.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return ArraySource, (self._data,)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        names = self.columns if columns is None else columns
        if consecutive(rows):
            first, last = int(rows[0]), int(rows[-1]) + 1
            taken = {name: self._columns[name][first:last].clone() for name in names}
        else:
            index = torch.from_numpy(rows.astype(np.int64))
            taken = {name: torch.index_select(self._columns[name], 0, index) for name in names}
        for name in names:
            if self._data.columns[name].dtype == UNSIGNED:
                taken[name] = taken[name].view(torch.uint64)
        return Batch(taken, len(rows))


def consecutive(rows: np.ndarray) -> bool:
    """Return whether these rows are consecutive."""
    if len(rows) == 0 or rows[-1] - rows[0] != len(rows) - 1:
        return False
    return bool((np.diff(rows) == 1).all())


def _map(name: str, ref: ArrayRef) -> torch.Tensor:
    memory = map_file(ref.path) if ref.path is not None else map_descriptor(_descriptor(name, ref))
    dtype: torch.dtype = getattr(torch, "int64" if ref.dtype == UNSIGNED else ref.dtype)
    count = int(np.prod(ref.shape))
    needed = ref.offset + count * dtype.itemsize
    if len(memory) < needed:
        raise DataError(
            f"column {name!r} needs {needed} bytes of {ref.path or 'its storage'}, "
            f"which has only {len(memory)}: was the file changed?"
        )
    return _tensor(memory, dtype, count, ref.offset).reshape(ref.shape)


def _descriptor(name: str, ref: ArrayRef) -> int:
    if ref.fd is None:
        raise DataError(f"column {name!r} refers to neither a file nor a file descriptor")
    return ref.fd


def _tensor(memory: mmap.mmap, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
    with warnings.catch_warnings():
        # The mapped tensor is not visible outside this file, so it is never written to.
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)
