"""Rows to predict, as given by the caller: columns, an Arrow table, a list of dicts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from flambeau.config.data import is_frame
from flambeau.data.frames import as_one_batch, as_table
from flambeau.errors import DataError
from flambeau.inference.few_rows import few_rows_together

LISTS = "lists of "
#: Types of columns without any value.
_EMPTY = {"floats": pa.float64(), "integers": pa.int64(), "texts": pa.string()}


def as_records(data: Any, types: Mapping[str, str]) -> pa.RecordBatch:
    """Return the rows as one record batch, with numbers in the types used in training."""
    try:
        records = _records(data, types)
    except _NothingError as error:
        known = ", ".join(f"'{name}'" for name in types)
        needs = f"; the model knows the columns {known}" if known else ""
        raise DataError(f"{error}{needs}") from None
    names, arrays = records.schema.names, records.columns
    pairs = zip(names, arrays, strict=True)
    columns = [_as_trained(name, column, types.get(name)) for name, column in pairs]
    return pa.RecordBatch.from_arrays(columns, names)


def _records(data: Any, types: Mapping[str, str]) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    if is_frame(data):
        table = as_table(data, "the data")
        return as_one_batch(table, "the data") if len(table) else _no_rows()
    if isinstance(data, Mapping):
        return _from_columns(data, types)
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(str(name) for row in data for name in row)
        return _from_columns({name: [row.get(name) for row in data] for name in names}, types)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes) and not len(data):
        return _no_rows()
    raise DataError(
        f"cannot predict for a {type(data).__name__}: give a dict of columns, a data frame, or a "
        "list of dicts"
    )


class _NothingError(Exception):
    """There are no rows or columns to predict."""


def _no_rows() -> Any:
    raise _NothingError("there are no rows to predict; give at least one")


def _from_columns(columns: Mapping[str, Any], types: Mapping[str, str]) -> pa.RecordBatch:
    together = few_rows_together(columns, types)
    arrays = {
        str(name): together[name] if name in together else _array(str(name), values)
        for name, values in columns.items()
    }
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns have different numbers of rows: {lengths}")
    if not lengths:
        raise _NothingError("the rows to predict have no columns")
    if 0 in lengths.values():
        _no_rows()
    return pa.record_batch(arrays)


def _array(name: str, values: Any) -> pa.Array:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    try:
        if isinstance(values, np.ndarray) and values.ndim > 1:
            return _lists(values)
        found = _numbers_or_texts(name, values)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"column '{name}': {error}; give one value, or one list, a row") from error


def _numbers_or_texts(name: str, values: Any) -> Any:
    """Return the values in Arrow; integers that exceed int64 are unsigned."""
    for kind in (None, pa.uint64(), pa.list_(pa.uint64())):
        try:
            return pa.array(values, kind)
        except OverflowError:
            continue
        except pa.ArrowException:
            if kind is None:
                raise
    raise DataError(
        f"column '{name}' holds integers that are neither all int64 nor all uint64; training reads "
        "such as texts: give texts"
    )


def _lists(values: "np.ndarray[Any, Any]") -> pa.Array:
    array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _as_trained(name: str, column: pa.Array, trained: str | None) -> pa.Array:
    """Convert the column to the trained kind; whole numbers may stand for floats."""
    if trained is None:
        return column
    given, wanted = _leaf(column.type), trained.removeprefix(LISTS)
    if wanted not in _EMPTY:
        return column
    if pa.types.is_null(given):
        kind = _EMPTY[wanted]
        return column.cast(pa.list_(kind) if trained.startswith(LISTS) else kind)
    kind = _kind(given)
    if kind == wanted or (wanted == "floats" and kind == "integers"):
        return _floats(column) if wanted == "floats" and kind == "integers" else column
    if wanted == "integers" and pa.types.is_floating(column.type):
        return _whole(name, column)
    how = ""
    if (kind, wanted) == ("texts", "integers"):
        how = f" (texts of Criteo logs by flambeau.data.text_hash.hash_texts(texts, {name!r}))"
    raise DataError(
        f"column '{name}' holds {kind}, but the model was trained with {wanted}; convert it "
        f"first{how}"
    )


def _floats(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.float64(), safe=False)
    inner = _floats(column.flatten())
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(inner, kind.list_size)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, inner)


def _whole(name: str, column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.int64())
    except pa.ArrowException as error:
        raise DataError(f"column '{name}' holds numbers with fractions, not ids") from error


def kind_of(kind: pa.DataType) -> str:
    """Return the kind of a column's type: `floats`, `integers`, `texts`, or `lists of` them."""
    leaf = _leaf(kind)
    is_list = leaf is not kind and not pa.types.is_dictionary(kind)
    return f"{LISTS if is_list else ''}{_kind(leaf)}"


def _leaf(kind: pa.DataType) -> pa.DataType:
    nested = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_dictionary,
    )
    while any(test(kind) for test in nested):
        kind = kind.value_type
    return kind


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return "floats"
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "integers"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return "texts"
    return str(kind)
