"""Spark's vectors in Arrow: struct<type, size, indices, values>."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from flambeau.data.jagged import Jagged
from flambeau.data.owned import owned
from flambeau.errors import DataError

_MEMBERS = ("type", "size", "indices", "values")
_DENSE = 1


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a column holds vectors."""
    return bool(pa.types.is_struct(kind)) and tuple(field.name for field in kind) == _MEMBERS


def vectors(column: pa.Array, *, sparse: bool, narrow: bool = False) -> Tensor | Jagged:
    """Return a tensor [rows, size]; with `sparse`, bags of positions with nonzero values.

    With `narrow`, the numbers are float32.
    """
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DataError(f"the vector of row {row} of the batch is missing; leave such rows out")
    values = column.field("values")
    entries = owned(values.flatten(), narrow=narrow)
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    dense = column.field("type").to_numpy(zero_copy_only=False) == _DENSE
    sizes = column.field("size").to_numpy(zero_copy_only=False)
    # Dense vectors have no `size`.
    sizes = np.where(dense, lengths, np.nan_to_num(sizes)).astype(np.int64)
    if not sparse and dense.all() and _all_equal(sizes):
        return entries.reshape(len(column), -1)
    places = _places(column, lengths.astype(np.int64), dense)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    bags = Jagged(torch.from_numpy(places), torch.from_numpy(offsets), entries)
    return bags if sparse else _dense(bags, sizes)


def _places(column: pa.Array, lengths: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """Return the position of each value within its vector."""
    starts = np.cumsum(lengths) - lengths
    places: np.ndarray = np.arange(lengths.sum(), dtype=np.int64) - np.repeat(starts, lengths)
    named = column.field("indices").flatten().to_numpy(zero_copy_only=False)
    places[np.repeat(~dense, lengths)] = named
    return places


def _dense(bags: Jagged, sizes: np.ndarray) -> Tensor:
    if not _all_equal(sizes):
        raise DataError(
            f"vectors of {sizes.min()} to {sizes.max()} numbers are in one column; a tensor needs "
            "vectors of one size"
        )
    assert bags.values is not None
    rows = len(sizes)
    out = torch.zeros(rows, int(sizes[0]) if rows else 0, dtype=bags.values.dtype)
    which = torch.repeat_interleave(torch.arange(rows), bags.offsets.diff())
    out[which, bags.ids] = bags.values
    return out


def _all_equal(sizes: np.ndarray) -> bool:
    return bool((sizes == sizes[:1]).all())
