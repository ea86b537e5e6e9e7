"""Columns of a batch as Arrow arrays, for operations on them."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from torch import Tensor

from flambeau.data.arrow_columns import to_columns
from flambeau.data.batch import Column
from flambeau.data.jagged import Jagged
from flambeau.data.raw_columns import Expand, Shorthand


def texts_of(columns: Mapping[str, Column], shorthand: Shorthand) -> set[str]:
    """Return the inputs that are texts in memory."""
    return {name for name in shorthand.salts if isinstance(columns.get(name), np.ndarray)}


def expand_columns(columns: dict[str, Column], shorthand: Shorthand, expand: Expand) -> None:
    """Replace texts by ids, and add crosses, in place."""
    crosses = shorthand.crosses
    changed = texts_of(columns, shorthand)
    needed = changed.union(*crosses.values())
    records = as_records({name: column for name, column in columns.items() if name in needed})
    made = expand(shorthand, records.schema)(records)
    found = [name for name in made.schema.names if name in changed or name in crosses]
    columns |= to_columns(made.select(found), inputs={*found})
    for name in shorthand.unused:
        columns.pop(name, None)


def as_records(columns: Mapping[str, Column]) -> pa.RecordBatch:
    """Return the columns as a record batch; bags and rows of several numbers become lists."""
    return pa.record_batch({name: _array(column) for name, column in columns.items()})


def _array(column: Column) -> pa.Array:
    if isinstance(column, np.ndarray):
        return pa.array(column, from_pandas=True)
    if isinstance(column, Tensor):
        flat = pa.array(column.detach().reshape(-1).numpy())
        if column.dim() == 1:
            return flat
        return pa.FixedSizeListArray.from_arrays(flat, column[0].numel() if len(column) else 1)
    assert isinstance(column, Jagged)
    bounds = column.offsets.numpy()[:: column.width]
    return pa.LargeListArray.from_arrays(pa.array(bounds), pa.array(column.ids.numpy()))
