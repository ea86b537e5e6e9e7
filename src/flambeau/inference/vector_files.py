"""Files of vectors of items and users, for an index or to initialize a table."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from flambeau.config.tables import TableSpec
from flambeau.data.binding import Binder
from flambeau.data.jagged import Jagged, one_id
from flambeau.data.loader import in_order
from flambeau.data.source import Source
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.tables.saved.table_export import write_vectors

Encode = Callable[..., Tensor]


def export_vectors(
    encode: Encode, source: Source, binder: Binder, out: Path, batch_size: int, id: str | None
) -> int:
    """Write the columns `id` and `vector` of a source's rows; return the number of rows.

    `encode` takes the arguments from the binder, and returns vectors [rows, dim]. The ids are those
    of the column `id`, or those of the first field of its first argument. `TableSpec(init=out)`
    reads the file.
    """
    if out.suffix != ".parquet":
        raise ConfigError(f"out={out}: vectors are written to a name that ends in .parquet")
    batches = _vectors(encode, source, binder, batch_size, id)
    first = next(batches, None)
    if first is None:
        raise DataError("there are no rows to make vectors of")
    spec = TableSpec("vectors", first.column("vector").type.list_size)
    return write_vectors(spec, _chained(first, batches), out)


def _vectors(
    encode: Encode, source: Source, binder: Binder, batch_size: int, id: str | None
) -> Iterator[pa.RecordBatch]:
    for batch in in_order(source, binder, batch_size):
        positional, named = binder.arguments(batch)
        with torch.inference_mode():
            vectors = encode(*positional, **named)
        if vectors.dim() != 2 or len(vectors) != batch.size:
            raise ModelError(
                f"vectors must be [rows, dim]; for {batch.size} rows the model gave "
                f"{list(vectors.shape)}"
            )
        name, ids = (id, batch[id]) if id is not None else _first(positional, named)
        if not isinstance(ids, Tensor | Jagged) or _floating(ids):
            raise DataError(
                f"column '{name}' does not hold ids: give id=, a column of integers; without it "
                "the ids are those that the model looks up"
            )
        yield _record_batch(one_id(ids, name), vectors)


def _first(positional: list[Any], named: dict[str, Any]) -> tuple[str, Any]:
    return ("x", positional[0]) if positional else next(iter(named.items()))


def _floating(ids: Tensor | Jagged) -> bool:
    return isinstance(ids, Tensor) and ids.is_floating_point()


def _record_batch(ids: Tensor, vectors: Tensor) -> pa.RecordBatch:
    flat = np.ascontiguousarray(vectors.float().cpu().numpy()).reshape(-1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.shape[1])
    return pa.RecordBatch.from_pydict({"id": pa.array(ids.cpu().numpy()), "vector": lists})


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
