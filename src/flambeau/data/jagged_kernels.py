"""Kernels that regroup the ids of jagged columns."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from flambeau.kernels.compiled import kernel


@kernel
def _by_field(offsets: Any, fields: Any, count: int, order: Any, bags: Any) -> None:
    """Sort each row by field (stable counting sort); `bags` [rows * count + 1] are new offsets."""
    place = np.empty(count, np.int64)
    for row in range(offsets.size - 1):
        place[:] = 0
        for i in range(offsets[row], offsets[row + 1]):
            place[fields[i]] += 1
        at = offsets[row]
        for field in range(count):
            bags[row * count + field] = at
            size = place[field]
            place[field] = at
            at += size
        for i in range(offsets[row], offsets[row + 1]):
            order[place[fields[i]]] = i
            place[fields[i]] += 1
    bags[-1] = offsets[-1]


def by_field(offsets: Tensor, fields: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the order that groups each row's ids by field, and the offsets of the groups."""
    order = np.empty(len(fields), np.int64)
    bags = np.empty((len(offsets) - 1) * count + 1, np.int64)
    _by_field(offsets.numpy(), fields.numpy(), count, order, bags)
    return torch.from_numpy(order), torch.from_numpy(bags)
