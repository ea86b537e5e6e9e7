"""Arrays of the user's process in files that worker processes can map."""

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np
import torch

from flambeau.config import ArrayRef
from flambeau.data.sources.shared_files import SharedFiles, UnnamedFiles
from flambeau.data.sources.text.naming import name_columns
from flambeau.errors import DataError

Array = np.ndarray | torch.Tensor

_CHUNK_BYTES = 16 << 20
_MISSING = (
    "; fill={{{name}: 0.0}} (or fill=0.0 for all) replaces missing values of an input; "
    "missing labels are ignored with label={{task: {name}}}"
)
# torch has hardly any operations for these.
_WIDER = {"uint16": "int32", "uint32": "int64"}


def array_columns(train: Any) -> tuple[dict[str, Array], tuple[str, ...], tuple[str, ...]]:
    """Return columns, names of inputs and names of labels of arrays given as `(x, y)` and the like.

    Other forms are `((x1, x2), y)`, `(x,)`, a single array, or a dict of columns (without names of
    inputs and labels, since the columns have names).
    """
    named = name_columns(train)
    for name, column in named.columns.items():
        if not isinstance(column, np.ndarray | torch.Tensor):
            raise DataError(
                f"column {name!r} is a {type(column).__name__}; "
                f"give numpy arrays or torch tensors, as (x, y), ((x1, x2), y) or a dict"
            )
    return named.columns, named.inputs, named.labels


def share_arrays(
    columns: Mapping[str, Array], directory: Path, missing: frozenset[str] = frozenset()
) -> tuple[dict[str, ArrayRef], list[int]]:
    """Return references to the columns, and the open, inheritable descriptors that they use.

    See `write_arrays`: the files are in `directory`, without names. The caller closes the
    descriptors.
    """
    files = UnnamedFiles(directory)
    try:
        return write_arrays(columns, files, missing), files.descriptors
    except BaseException:
        files.close()
        raise


def write_arrays(
    columns: Mapping[str, Array], files: SharedFiles, missing: frozenset[str] = frozenset()
) -> dict[str, ArrayRef]:
    """Return references to the columns, each written to a separate file.

    An array that maps a file (`np.memmap`) is referred to by its path instead, if its readers can
    open that path. Infinity is an error, and so is NaN except in the columns `missing`.
    """
    _require_equal_lengths(columns)
    refs: dict[str, ArrayRef] = {}
    for name, values in columns.items():
        column = _Column(name, values, _storage_dtype(name, values), name in missing)
        refs[name] = (_mapped(column) if files.refers else None) or _copied(column, files)
    return refs


def _require_equal_lengths(columns: Mapping[str, Array]) -> None:
    scalars = [name for name, column in columns.items() if column.ndim == 0]
    if scalars:
        raise DataError(f"column {scalars[0]!r} is a single number, not an array of rows")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise DataError(f"columns have different numbers of rows: {listed}")
    if not lengths or 0 in lengths.values():
        raise DataError("the training arrays have no rows")


def _storage_dtype(name: str, values: Array) -> str:
    """Return the name of the torch dtype in which the column is stored."""
    if isinstance(values, torch.Tensor):
        dtype = str(values.dtype).removeprefix("torch.")
    else:
        dtype = values.dtype.newbyteorder("=").name
    dtype = _WIDER.get(dtype, dtype)
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise DataError(
            f"column {name!r} has type {values.dtype}; give numbers or booleans "
            f"(text has to be encoded as numbers first)"
        )
    return dtype


@final
@dataclass(frozen=True)
class _Column:
    """An array, the type in which it is stored, and whether it may contain NaN."""

    name: str
    values: Array
    dtype: str
    nan: bool

    def chunks(self) -> Iterator[torch.Tensor]:
        """Yield the column in pieces of bounded size, each contiguous and checked."""
        step = max(1, _CHUNK_BYTES * len(self.values) // max(1, self.values.nbytes))
        for first in range(0, len(self.values), step):
            chunk = self._stored(self.values[first : first + step])
            self._check(chunk, first)
            yield chunk

    def _stored(self, part: Array) -> torch.Tensor:
        if isinstance(part, torch.Tensor):
            return part.detach().cpu().to(getattr(torch, self.dtype)).contiguous()
        return torch.from_numpy(np.array(part, dtype=self.dtype, order="C"))

    def _check(self, chunk: torch.Tensor, first: int) -> None:
        if chunk.is_floating_point() or chunk.is_complex():
            fault = "infinity" if self.nan else "NaN or infinity"
            bad = torch.isinf(chunk) if self.nan else ~torch.isfinite(chunk)
        else:
            return
        if bad.any():
            row = first + int(bad.reshape(len(chunk), -1).any(dim=1).nonzero()[0])
            nan = not self.nan and chunk.is_floating_point() and bool(chunk.isnan().any())
            hint = _MISSING.format(name=repr(self.name)) if nan else ""
            raise DataError(f"column {self.name!r} holds {fault}, first in row {row}{hint}")


def _mapped(column: _Column) -> ArrayRef | None:
    """Return a reference to the file that the array maps, or None if it must be copied."""
    values = column.values
    # In mode "c" the array may have changes that are not in the file.
    if not isinstance(values, np.memmap) or values.filename is None or values.mode == "c":
        return None
    if not values.flags.c_contiguous or values.dtype != np.dtype(column.dtype):
        return None
    for _ in column.chunks():
        pass
    return ArrayRef(
        path=os.path.abspath(values.filename),
        offset=_file_offset(values),
        dtype=column.dtype,
        shape=values.shape,
    )


def _file_offset(values: "np.memmap[Any, Any]") -> int:
    # A view of a memmap keeps the `offset` of the whole, so the address is used instead.
    start = np.frombuffer(values._mmap, np.uint8).ctypes.data  # type: ignore[attr-defined]
    mapped_from = values.offset - values.offset % mmap.ALLOCATIONGRANULARITY
    return mapped_from + values.ctypes.data - start


def _copied(column: _Column, files: SharedFiles) -> ArrayRef:
    what, size = f"column {column.name!r}", column.values.nbytes
    file = files.put(lambda file: _write(column, file), what, size)
    return ArrayRef(
        fd=file.fd, path=file.path, dtype=column.dtype, shape=tuple(column.values.shape)
    )


def _write(column: _Column, file: IO[bytes]) -> None:
    for chunk in column.chunks():
        file.write(chunk.reshape(-1).view(torch.uint8).numpy().data)
