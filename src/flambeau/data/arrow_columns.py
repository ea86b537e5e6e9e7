"""Arrow record batches as columns of a batch."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from flambeau.data.batch import Column
from flambeau.errors import DataError

# torch has hardly any operations for these.
_WIDER = {pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}


def to_columns(batch: pa.RecordBatch, nullable: frozenset[str] = frozenset()) -> dict[str, Column]:
    """Numbers as tensors, lists of numbers as tensors [rows, length], the rest as objects.

    Times become int64 in their own unit. A missing float is NaN; a missing integer or boolean is
    an error, except in the columns `nullable`, which then become float64 with NaN. The tensors own
    their memory.
    """
    columns: dict[str, Column] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns[name] = _column(column, name in nullable)
        except (pa.ArrowException, _MissingError) as error:
            raise DataError(f"column {name!r}: {error}") from error
    return columns


class _MissingError(ValueError):
    """A value that has to be there and is not."""


def _column(column: pa.Array, nullable: bool) -> Column:
    numbers = _numbers(column)
    if numbers is None:
        objects: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
        return objects.astype(object, copy=False)
    return _tensor(numbers, nullable)


def _numbers(column: pa.Array) -> pa.Array | None:
    """The column as numbers, or lists of them; None when it is something else."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _numbers(column.dictionary_decode())
    if kind in _WIDER:
        return column.cast(_WIDER[kind])
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_temporal(kind):
        # 32-bit dates and times cannot be cast to int64 directly.
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    if _is_number(kind) or _is_list(kind):
        return column if _equal_lengths(column) else None
    return None


def _tensor(column: pa.Array, nullable: bool) -> torch.Tensor:
    if _is_list(column.type):
        return _stacked(column, nullable)
    if column.null_count and not pa.types.is_floating(column.type):
        if not nullable:
            _require_all(column)
        column = _as_float(column)
    # A copy, as the memory may be a mapped file: changing that in place would end the process.
    return torch.from_numpy(column.to_numpy(zero_copy_only=False, writable=True))


def _stacked(column: pa.Array, nullable: bool) -> torch.Tensor:
    _require_all(column)
    numbers = _numbers(column.flatten())
    assert numbers is not None
    inner = _tensor(numbers, nullable)
    length = len(inner) // len(column) if len(column) else 0
    return inner.reshape(len(column), length, *inner.shape[1:])


def _require_all(column: pa.Array) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise _MissingError(
            f"a value is missing in row {row} of the batch; fill in missing values, "
            f"or store the column as floating-point numbers (missing is then NaN)"
        )


def _as_float(column: pa.Array) -> pa.Array:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return column.cast(pa.float64(), safe=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _equal_lengths(column: pa.Array) -> bool:
    """Whether the lists, at every depth, end in numbers and are equally long."""
    if not _is_list(column.type):
        return _numbers(column) is not None if not _is_number(column.type) else True
    lengths = pc.min_max(pc.list_value_length(column))
    return lengths["min"] == lengths["max"] and _equal_lengths(column.flatten())
