"""Stacking of several columns as one input of a model."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from flambeau.data import jagged
from flambeau.data.jagged import Jagged
from flambeau.errors import DataError

#: Types of columns that can be stacked without conversion.
_FLAT = {pa.int64(), pa.float32(), pa.float64()}


def text_among_numbers(name: str) -> str:
    """Return the message about a column of texts among numbers, with how to find the texts."""
    return (
        f"column '{name}' holds text, which becomes ids, but numbers are needed (if only some "
        f"values are text, correct them; in a CSV file types={{'{name}': 'float64'}} finds them)"
    )


def refuse_times(schema: pa.Schema, names: Collection[str]) -> None:
    """Raise `DataError` for dates and times in columns that the model takes as numbers."""
    for name in names:
        kind = schema.field(name).type if name in schema.names else pa.null()
        if pa.types.is_temporal(kind):
            raise DataError(
                f"column '{name}' holds times ({kind}), and the model takes numbers: make numbers "
                f"of it in the data, such as the hour or the day of the week (in pandas "
                f"frame['{name}'].dt.hour)"
            )


def stack(
    named: Mapping[str, Tensor | Jagged], texts: Collection[str], dtype: torch.dtype
) -> Tensor | Jagged:
    """Return a tensor [rows, columns] of `dtype` if a column is floating-point, else of int64.

    Columns with missing ids, or several ids in a row, give a `Jagged` with a bag for each column.
    The columns `texts` were texts; their ids must not be stacked with numbers.
    """
    members = [member for member in named.values() if isinstance(member, Tensor)]
    floating = any(member.is_floating_point() for member in members)
    if floating:
        _refuse_ids(named, texts)
    if len(members) < len(named):
        return jagged.stack(list(named.values()))
    rows = members[0].shape[0]
    width = sum(1 if member.dim() == 1 else member.shape[1] for member in members)
    out = torch.empty((rows, width), dtype=dtype if floating else torch.int64)
    position = 0
    for member in members:
        block = member.unsqueeze(1) if member.dim() == 1 else member
        out[:, position : position + block.shape[1]] = block
        position += block.shape[1]
    return out


def flat_stacks(
    stacks: Mapping[str, tuple[str, ...]], schema: pa.Schema
) -> dict[str, tuple[str, ...]]:
    """Return the stacks whose columns have one type, with a number or id in each row."""
    found = {}
    for name, members in stacks.items():
        kinds = {schema.field(member).type for member in members}
        if len(kinds) == 1 and kinds <= _FLAT:
            found[name] = members
    return found


def stack_flat(columns: Sequence[pa.Array], dtype: torch.dtype) -> Tensor | Jagged:
    """Stack columns of one type, int64 or floating-point, as `stack` does but in one operation.

    A missing floating-point number is NaN.
    """
    whole, width = pa.concat_arrays(columns), len(columns)
    if whole.null_count and pa.types.is_integer(whole.type):
        return _stack_with_gaps(whole, width)
    values = whole.to_numpy(zero_copy_only=False).reshape(width, -1)
    rows = torch.from_numpy(np.array(values.T, order="C"))
    return rows.to(dtype) if rows.is_floating_point() else rows


def _stack_with_gaps(ids: pa.Array, width: int) -> Jagged:
    there = ids.is_valid().to_numpy(zero_copy_only=False).reshape(width, -1).T.reshape(-1)
    places = ids.fill_null(0).to_numpy().reshape(width, -1).T.reshape(-1)
    offsets = np.zeros(len(there) + 1, np.int64)
    np.cumsum(there, out=offsets[1:])
    found = torch.from_numpy(places[there])
    return Jagged(found, torch.from_numpy(offsets), width=width, row_shape=(width,))


def _refuse_ids(named: Mapping[str, Tensor | Jagged], texts: Collection[str]) -> None:
    """Raise `DataError` for ids that are stacked with floating-point numbers."""
    for name, member in named.items():
        if isinstance(member, Jagged):
            raise DataError(
                f"column '{name}' has missing or several ids in a row, and cannot be stacked "
                f"with numbers: fill={{'{name}': 0.0}}, or make it an input of its own"
            )
        if name in texts:
            raise DataError(
                f"{text_among_numbers(name)}: it is stacked with numbers; make it an input of its "
                "own, or leave it out of inputs="
            )
