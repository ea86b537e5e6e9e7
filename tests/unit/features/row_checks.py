"""What is true of each row operation: rows do not depend on each other, and files keep it all."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from flambeau.features.operation import Operation
from flambeau.features.pipeline import Pipeline


def transformed(operation: Operation, train: Any, rows: pa.Table | None = None) -> pa.Table:
    """Return what an operation, fitted on `train`, makes of rows.

    That is the same for all rows at once and for each by itself, and after saving and loading.
    """
    pipeline = Pipeline([operation]).fit(train)
    rows = train if rows is None else rows
    rows = pa.table(rows) if isinstance(rows, dict) else rows
    found = pipeline.transform(rows)
    found.validate(full=True)
    each = [pipeline.transform(rows.slice(i, 1)) for i in range(len(rows))]
    assert same(pa.concat_tables(each), found)
    assert same(saved_and_loaded(pipeline).transform(rows), found)
    return found


def saved_and_loaded(pipeline: Pipeline) -> Pipeline:
    with TemporaryDirectory() as folder:
        pipeline.save(Path(folder, "pipeline"))
        return Pipeline.load(Path(folder, "pipeline"), trust=True)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Return whether tables have the same types and bits; NaN equals NaN."""
    if one.schema != other.schema or len(one) != len(other):
        return False
    pairs = zip(one.columns, other.columns, strict=True)
    return all(a.equals(b) or repr(a.to_pylist()) == repr(b.to_pylist()) for a, b in pairs)
