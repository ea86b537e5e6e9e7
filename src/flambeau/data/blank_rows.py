"""Blank rows of a schema: zeros, empty texts, and lists of one of these."""

from typing import Any

import pyarrow as pa

from flambeau.data.arrow_columns import is_text
from flambeau.data.spark_vectors import is_vector

_DENSE = 1


def blank_rows(schema: pa.Schema, rows: int, *, gaps: bool = False) -> pa.RecordBatch:
    """Return `rows` rows with the types of the schema; types without a zero have nulls.

    With `gaps`, the last value of each nullable column is null.
    """
    columns = []
    for field in schema:
        values = [_blank(field.type)] * rows
        if gaps and field.nullable:
            values[-1] = None
        columns.append(pa.array(values, field.type))
    return pa.record_batch(columns, schema=schema)


def _blank(kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_dictionary(kind):
        return _blank(kind.value_type)
    if types.is_fixed_size_list(kind):
        return [_blank(kind.value_type)] * kind.list_size
    if types.is_list(kind) or types.is_large_list(kind):
        return [_blank(kind.value_type)]
    if is_vector(kind):
        return {"type": _DENSE, "values": [0.0]}
    if types.is_struct(kind):
        return {field.name: _blank(field.type) for field in kind}
    if is_text(kind):
        return b""
    if types.is_boolean(kind):
        return False
    return None if types.is_null(kind) or types.is_map(kind) else 0
