"""Data frames of pandas, Polars and other libraries that export Arrow, as Arrow tables."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flambeau.config.data import is_pandas
from flambeau.errors import DataError


def as_table(data: Any, name: str) -> pa.Table:
    """Return the columns of a frame, in types of which rows can be taken; `name` is for messages.

    The index of a pandas frame is left out. Vectors, which are lists of floating-point numbers,
    have their length in their type if all have the same length.
    """
    try:
        if is_pandas(data):
            table = pa.Table.from_pandas(data, preserve_index=False)
        else:
            table = pa.table(data)
        columns = {key: _plain_column(table.column(key)) for key in table.schema.names}
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        text = ": ".join(map(str, reversed(error.args))) if error.args else str(error)
        raise DataError(
            f"{name} is a {type(data).__name__} whose columns are not all numbers, texts or lists "
            f"of them, with names of their own: {text}"
        ) from error
    return pa.table(columns)


def as_one_batch(table: pa.Table, name: str) -> pa.RecordBatch:
    """Return the rows of a table in one batch; raise `DataError` if there are none."""
    if not table.num_rows or not table.num_columns:
        raise DataError(f"{name} has no {'rows' if table.num_columns else 'columns'}")
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [_plain(chunk) for chunk in column.chunks]
    plain = pa.chunked_array(chunks, _plain_type(column.type))
    if not pa.types.is_large_list(plain.type) or plain.null_count or not len(plain):
        return plain
    lengths = pc.min_max(pc.list_value_length(plain)).as_py()
    if not pa.types.is_floating(plain.type.value_type) or lengths["min"] != lengths["max"]:
        return plain
    return plain.cast(pa.list_(plain.type.value_type, lengths["min"]))


def _plain(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary).take(array.indices)
    kind = _plain_type(array.type)
    return array if array.type == kind else array.cast(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with room for any number of texts or lists, of which Arrow can take rows."""
    types = pa.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    return kind
