"""Columns of Ray Dataset blocks, as plain Arrow types that are the same in all blocks."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from flambeau.errors import DataError


def plain_columns(table: pa.Table) -> pa.Table:
    """Return a table with Ray's tensor types as lists (of a fixed size, if shapes are equal).

    Categories, whose codes differ from block to block, become plain values.
    """
    return pa.table({name: _plain(table.column(name)) for name in table.schema.names})


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    shape = getattr(column.type, "shape", None)
    chunks = [_lists(chunk, shape) for chunk in column.chunks]
    return pa.chunked_array(chunks)


def _lists(tensors: pa.ExtensionArray, shape: Sequence[int | None] | None) -> pa.Array:
    if shape is None:
        return tensors.storage
    if shape == (None,):  # vectors of different lengths
        return tensors.storage.flatten()[0]
    if None in shape or tensors.null_count:
        return tensors.storage
    values = tensors.storage.flatten()
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema for the rows of all blocks; raise an error if there is none.

    Blocks are made independently: a column may have no fractions, only empty lists or no values in
    one of them.
    """
    different = list(dict.fromkeys(schema.remove_metadata() for schema in schemas))
    try:
        return pa.unify_schemas(different, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"blocks of the Ray Dataset have columns of different types: {error}; cast "
            "them in it, or drop those that the job does not need"
        ) from None


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema; missing columns are filled with nulls."""
    return pa.table([_as(table, field) for field in schema], schema)


def _as(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.schema.names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"column {field.name!r} is {column.type} in a block of the Ray Dataset and "
            f"{field.type} with the others: {error}; cast or drop it in the dataset"
        ) from None
