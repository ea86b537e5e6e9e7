"""Predictions for any source, batch by batch."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch
from torch import nn

from flambeau.checkpoint.durable import TEMPORARY
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.loader import in_order
from flambeau.data.source import Source
from flambeau.errors import ConfigError, DataError
from flambeau.inference.outputs import prediction_columns


@final
class Predictor:
    """Applies a model to data. Keeps the order of rows; `keys` are copied beside predictions."""

    def __init__(
        self,
        model: nn.Module,
        loss: str | Mapping[str, str | None] | None,
        keys: tuple[str, ...],
        transform: Callable[[Batch], Batch] | None = None,
    ) -> None:
        self._model = model.eval()
        self._loss, self._keys, self._transform = loss, keys, transform

    def predict(self, source: Source, binder: Binder, batch_size: int) -> Iterator[pa.RecordBatch]:
        """One record batch per batch of rows."""
        for batch in in_order(source, binder, batch_size):
            prepared = self._transform(batch) if self._transform is not None else batch
            yield self._predict(prepared, binder)

    def _predict(self, batch: Batch, binder: Binder) -> pa.RecordBatch:
        positional, named = binder.arguments(batch)
        with torch.inference_mode():
            output = self._model(*positional, **named)
        columns = {name: _key_array(batch, name) for name in self._keys}
        columns |= prediction_columns(output, self._loss)
        return pa.RecordBatch.from_pydict(columns)


def _key_array(batch: Batch, name: str) -> pa.Array:
    column = batch[name]
    return pa.array(column.numpy() if isinstance(column, torch.Tensor) else column)


def write_predictions(batches: Iterator[pa.RecordBatch], out: Path) -> int:
    """Write to a Parquet or CSV file (or into a folder); it appears only when complete.

    Returns the number of rows.
    """
    if out.suffix not in (".parquet", ".csv"):
        if out.suffix or out.is_file():
            raise ConfigError(f"out={out}: use a name that ends in .parquet or .csv, or a folder")
        out = out / "part-00000.parquet"
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}{TEMPORARY}")
    try:
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
    """Lists of fixed size as one column for each place in them, since CSV has no lists."""
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
