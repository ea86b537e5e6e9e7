"""Import of a table's initial rows from a Parquet file of vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flambeau.config.plural import number_of
from flambeau.errors import DataError
from flambeau.tables.index.ids import Ids
from flambeau.tables.table import Table

ROWS_AT_ONCE = 1 << 16

Array = np.ndarray[Any, Any]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def import_vectors(table: Table, path: str | Path, keep: Callable[[Ids], Mask]) -> int:
    """Load the rows of a file whose ids `keep` accepts; return how many were loaded.

    The file has the columns `id` (integers) and `vector` (lists of as many numbers as the table has
    columns). If an id occurs twice, the last row counts. Raises `DataError` for any other file.
    """
    loaded = 0
    with _opened(path) as file:
        _check_columns(file.schema_arrow, path)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=["id", "vector"]):
            ids = _ids(batch.column("id"), path)
            vectors = _vectors(batch.column("vector"), ids, table, path)
            kept = keep(ids)
            table.load(ids[kept], vectors[kept])
            loaded += int(kept.sum())
    return loaded


def _opened(path: str | Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except OSError as error:
        raise DataError(f"init file '{path}' cannot be opened: {error}") from error
    except pa.ArrowInvalid as error:
        raise DataError(f"init file '{path}' is not a Parquet file: {error}") from error


def _check_columns(schema: Any, path: str | Path) -> None:
    for name in ("id", "vector"):
        if name not in schema.names:
            found = ", ".join(schema.names)
            raise DataError(
                f"init file '{path}' has no column '{name}' (it has: {found}); "
                "it needs 'id' (int64) and 'vector' (list of floats)"
            )
    kind = schema.field("id").type
    if not pa.types.is_integer(kind):
        raise DataError(f"init file '{path}': column 'id' is {kind}, and must be int64")
    kind = schema.field("vector").type
    if not _is_list(kind) or not pa.types.is_floating(kind.value_type):
        raise DataError(f"init file '{path}': column 'vector' is {kind}, and must be list<float>")


def _is_list(kind: Any) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in kinds)


def _ids(column: Any, path: str | Path) -> Ids:
    if column.null_count:
        raise DataError(
            f"init file '{path}': {number_of(column.null_count, 'row')} without an id (null); "
            "give each row one"
        )
    try:
        ids: Ids = column.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"init file '{path}': an id does not fit into int64: {error}") from error
    return ids


def _vectors(column: Any, ids: Ids, table: Table, path: str | Path) -> Array:
    """Return the vectors as one array [n, dim]; raise `DataError` for wrong lengths and numbers."""
    dim = table.spec.dim
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    if (lengths != dim).any():
        first = int(np.flatnonzero(lengths != dim)[0])
        found = "null" if lengths[first] < 0 else f"{lengths[first]} long"
        raise DataError(
            f"init file '{path}': the vector of id {ids[first]} is {found}, "
            f"and table '{table.spec.name}' has dim={dim}"
        )
    numbers = column.flatten().to_numpy(zero_copy_only=False)
    vectors: Array = numbers.astype(table.dtype, copy=False).reshape(-1, dim)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise DataError(
            f"init file '{path}': the vector of id {ids[np.flatnonzero(~finite)[0]]} has "
            "numbers that are null, NaN or infinite; remove or replace it"
        )
    return vectors
