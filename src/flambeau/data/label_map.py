"""Mapping of the data's labels to the numbers that the loss expects."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from flambeau.config.data import shown_map
from flambeau.data.batch import Batch, Column
from flambeau.errors import DataError


def map_labels(label: Tensor, mapping: Mapping[float, float], column: str) -> Tensor:
    """Return the labels mapped by `mapping`; NaN, a missing label, remains.

    Integers become int64 if all values of `mapping` are integers, and float32 otherwise.
    """
    whole = all(value.is_integer() for value in mapping.values())
    dtype = label.dtype if label.is_floating_point() else torch.int64 if whole else torch.float32
    out, known = label.to(dtype, copy=True), label.isnan()
    for old, new in mapping.items():
        found = label == old
        out[found] = new
        known |= found
    if not bool(known.all()):
        raise DataError(
            f"label {label[~known][0].item():g} in column '{column}' is not in "
            f"{shown_map(mapping)}, which was given, or recognised in the first rows of the "
            "training data: give label_map= with every label"
        )
    return out


def refuse_text(column: Column | None, what: str) -> None:
    """Raise `DataError` if a column has texts or lists where numbers are needed."""
    if isinstance(column, np.ndarray):
        raise DataError(
            f"{what} holds text or lists, not numbers; convert it to numbers in the data"
        )


def numbers_in(batch: Batch, name: str) -> Tensor:
    """Return the column; raise `DataError` if it does not hold numbers."""
    column = batch[name]
    if not isinstance(column, Tensor):
        raise DataError(
            f"column '{name}' holds text or lists, not numbers; leave it out of label= and weight= "
            "(keys= may name it)"
        )
    return column
