"""Integer columns: ids, or numbers that the model takes as such."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from flambeau.data.batch import Column
from flambeau.data.jagged import Jagged
from flambeau.errors import DataError


def plain_integers(
    columns: Mapping[str, Column],
    numbers: Collection[str],
    stacks: Iterable[tuple[str, ...]],
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Return the integer columns that change: those among `numbers` become `dtype`, uint64 int64.

    uint64 columns that are stacked with floating-point columns become `dtype`, too. Others keep
    their bits.
    """
    floats = {name for name, column in columns.items() if _is_floating(column)}
    beside = set().union(*(stack for stack in stacks if floats.intersection(stack)))
    plain = {}
    for name, column in columns.items():
        if not isinstance(column, Tensor) or column.is_floating_point():
            continue
        wide = column.dtype == torch.uint64
        if name in numbers or (name in beside and wide):
            plain[name] = column.to(dtype)
        elif wide:
            plain[name] = column.view(torch.int64)
    return plain


def ids_or_numbers(columns: Mapping[str, Column], name: str) -> Tensor | Jagged:
    """Return the column, which must be one that a model can take."""
    column = columns[name]
    if isinstance(column, np.ndarray):
        raise DataError(
            f"column '{name}' holds neither numbers nor texts nor lists of them; leave it out of "
            "inputs= (keys= may name it)"
        )
    return column


def holds_ids(column: Column) -> bool:
    """Return whether a column holds ids, for lookups."""
    return isinstance(column, Jagged) or column.dtype == torch.int64


def _is_floating(column: Column) -> bool:
    return isinstance(column, Tensor) and column.is_floating_point()
