"""Predictions as one file that is written completely or not at all."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from flambeau.checkpoint.durable import TEMPORARY
from flambeau.checkpoint.os_errors import named
from flambeau.errors import ConfigError, DataError

#: Suffixes of a single file of predictions; a name without a suffix is a folder.
FILE_SUFFIXES = (".parquet", ".csv")


def is_folder(out: Path) -> bool:
    """Return whether predictions go into a folder of parts, not into one file."""
    if out.suffix in FILE_SUFFIXES:
        return False
    if out.is_dir() or not (out.suffix or out.is_file()):
        return True
    raise ConfigError(f"out={out}: use a name that ends in .parquet or .csv, or a folder")


def write_predictions(batches: Iterator[pa.RecordBatch], out: Path) -> int:
    """Write a Parquet or CSV file, which appears when it is complete; return the number of rows."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that write the same file must not share a temporary file.
    partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with named(out):
            rows = _write(batches, partial, csv=out.suffix == ".csv")
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _write(batches: Iterator[pa.RecordBatch], path: Path, *, csv: bool) -> int:
    if csv:
        batches = map(_without_lists, batches)
    first = next(batches, None)
    if first is None:
        raise DataError("there are no rows to predict")
    kind = pyarrow.csv.CSVWriter if csv else pyarrow.parquet.ParquetWriter
    rows = 0
    with kind(str(path), first.schema) as writer:
        for batch in _chain(first, batches):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _without_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace lists of fixed size by one column for each position, since CSV has no lists."""
    columns: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns |= _places(name, column)
    return pa.RecordBatch.from_pydict(columns)


def _places(name: str, column: pa.Array) -> dict[str, pa.Array]:
    if not pa.types.is_fixed_size_list(column.type):
        return {name: column}
    values, size = column.flatten(), column.type.list_size
    places = [_places(f"{name}_{place}", values[place::size]) for place in range(size)]
    return {key: array for place in places for key, array in place.items()}


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
