"""Export of a table's rows to a Parquet file of ids and vectors."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from flambeau.checkpoint.durable import TEMPORARY
from flambeau.checkpoint.os_errors import named
from flambeau.config.tables import TableSpec
from flambeau.tables.precision import COMPUTED
from flambeau.tables.saved.mapped import MappedTable

ROWS_AT_ONCE = 1 << 16


def vectors(table: MappedTable) -> Iterator[pa.RecordBatch]:
    """Yield all rows in batches of bounded size, with the columns `id` and `vector`."""
    schema = _schema(table.spec)
    for ids, values in table.chunks(ROWS_AT_ONCE):
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, table.spec.dim)
        yield pa.RecordBatch.from_arrays([pa.array(ids), lists], schema=schema)


def write_vectors(spec: TableSpec, batches: Iterator[pa.RecordBatch], out: Path) -> int:
    """Write batches of a table's rows to a file; return the number of rows.

    The file appears under its name only when it is complete.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}{TEMPORARY}")
    rows = 0
    try:
        with named(out), pyarrow.parquet.ParquetWriter(str(partial), _schema(spec)) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _schema(spec: TableSpec) -> pa.Schema:
    number = pa.from_numpy_dtype(COMPUTED[spec.dtype])
    return pa.schema({"id": pa.int64(), "vector": pa.list_(number, spec.dim)})
