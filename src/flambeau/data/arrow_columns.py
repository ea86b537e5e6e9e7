"""Conversion of Arrow record batches to columns of a batch."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from flambeau.data.batch import Column
from flambeau.data.jagged import Jagged
from flambeau.data.owned import owned
from flambeau.data.spark_vectors import is_vector, vectors
from flambeau.errors import DataError

# torch has hardly any operations for these. Binders convert uint64 to int64 after copying keys.
_WIDER = {pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
#: Members of a bag's items, in the order of `Jagged`; only the first is required.
MEMBERS = ("id", "value", "field")


def to_columns(
    batch: pa.RecordBatch,
    nullable: frozenset[str] = frozenset(),
    inputs: Collection[str] = frozenset(),
    bags: frozenset[str] = frozenset(),
    narrow: frozenset[str] = frozenset(),
) -> dict[str, Column]:
    """Convert numbers to tensors, lists of numbers to tensors [rows, length], others to objects.

    Lists of structs with the members `id` (and `value`, and `field`), and maps of numbers, become
    jagged. Times become int64 in their own unit. A missing float is NaN; a missing integer or
    boolean is an error, except in the columns `nullable`, which then become float64 with NaN. The
    tensors own their memory.

    In the columns `inputs`, lists of ids may have different lengths, and a missing id or list is an
    empty bag. Spark's vectors become tensors [rows, size], but jagged in the columns `bags`. In the
    columns `narrow`, float64 becomes float32.
    """
    columns: dict[str, Column] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            if is_vector(column.type):
                columns[name] = vectors(column, sparse=name in bags, narrow=name in narrow)
            else:
                columns[name] = _column(column, name in nullable, name in inputs, name in narrow)
        except (pa.ArrowException, _MissingError, DataError) as error:
            raise DataError(f"column {name!r}: {error}") from error
    return columns


def as_columns(rows: Mapping[str, Column] | pa.RecordBatch) -> Mapping[str, Column]:
    """Return the columns of rows as a source returns them; missing numbers are NaN."""
    if not isinstance(rows, pa.RecordBatch):
        return rows
    return to_columns(rows, nullable=frozenset(rows.schema.names))


def holds_text(schema: pa.Schema, name: str) -> bool:
    """Return whether a column exists and is one of texts."""
    kind = schema.field(name).type if name in schema.names else pa.null()
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def items_are_text(kind: pa.DataType) -> bool:
    """Return whether a column holds texts, or lists of them."""
    for nested in (pa.types.is_dictionary, _is_list, pa.types.is_dictionary):
        kind = kind.value_type if nested(kind) else kind
    return is_text(kind)


class _MissingError(ValueError):
    """A required value is missing."""


def _column(column: pa.Array, nullable: bool, is_input: bool, narrow: bool) -> Column:
    bags = _bags(column, is_input)
    if bags is not None:
        return bags
    numbers = _numbers(column)
    if numbers is None:
        objects: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
        return objects.astype(object, copy=False)
    return _tensor(numbers, nullable, narrow)


def _bags(column: pa.Array, is_input: bool) -> Jagged | None:
    """Return the column as bags of ids, or None if it holds something else."""
    kind = column.type
    if pa.types.is_map(kind) and pa.types.is_integer(kind.key_type):
        return _jagged(column, column.keys, column.items, None)
    if not _is_list(kind):
        if is_input and pa.types.is_integer(kind) and column.null_count:
            present = column.is_valid().cast(pa.int64())
            return Jagged(_ids(column.drop_null()), _offsets(present), row_shape=())
        return None
    items = kind.value_type
    if pa.types.is_struct(items) and items.get_field_index(MEMBERS[0]) >= 0:
        parts = column.flatten()
        found = [
            parts.field(name) if items.get_field_index(name) >= 0 else None for name in MEMBERS
        ]
        return _jagged(column, *found)
    varies = is_input and pa.types.is_integer(items)
    if varies and (column.null_count or not _equal_lengths(column)):
        return _jagged(column, column.flatten(), None, None)
    return None


def _jagged(
    column: pa.Array, ids: pa.Array, values: pa.Array | None, fields: pa.Array | None
) -> Jagged:
    if pa.types.is_map(column.type):
        bounds = column.offsets.to_numpy().astype(np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        ids = ids.slice(first, last - first)
        values = None if values is None else values.slice(first, last - first)
        offsets = torch.from_numpy(bounds - first)
    else:
        offsets = _offsets(pc.fill_null(pc.list_value_length(column), 0))
    for part in (ids, values, fields):
        if part is not None:
            _require_all(part)
    return Jagged(
        _ids(ids),
        offsets,
        None if values is None else _tensor(values.cast(pa.float32())),
        None if fields is None else _ids(fields),
    )


def _ids(column: pa.Array) -> torch.Tensor:
    """Return ids as int64; larger ones keep their bits."""
    wide = pa.types.is_uint64(column.type)
    return _tensor(column.view(pa.int64()) if wide else column.cast(pa.int64()))


def _offsets(lengths: pa.Array) -> torch.Tensor:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=out[1:])
    return torch.from_numpy(out)


def _numbers(column: pa.Array) -> pa.Array | None:
    """Return the column as numbers, or lists of them; None if it holds something else."""
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


def _tensor(column: pa.Array, nullable: bool = False, narrow: bool = False) -> torch.Tensor:
    if _is_list(column.type):
        return _stacked(column, nullable, narrow)
    if column.null_count and not pa.types.is_floating(column.type):
        if not nullable:
            _require_all(column)
        column = _as_float(column)
    return owned(column, narrow=narrow)


def _stacked(column: pa.Array, nullable: bool, narrow: bool) -> torch.Tensor:
    _require_all(column)
    numbers = _numbers(column.flatten())
    assert numbers is not None
    inner = _tensor(numbers, nullable, narrow)
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


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts or bytes."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _equal_lengths(column: pa.Array) -> bool:
    """Return whether the lists at every depth have equal lengths and contain numbers."""
    if not _is_list(column.type):
        return _numbers(column) is not None if not _is_number(column.type) else True
    lengths = pc.min_max(pc.list_value_length(column))
    return lengths["min"] == lengths["max"] and _equal_lengths(column.flatten())
