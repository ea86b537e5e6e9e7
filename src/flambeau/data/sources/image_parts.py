"""The images of several files, numbered through."""

from collections.abc import Sequence
from typing import final

import numpy as np
import torch


@final
class ImageParts:
    """Images of equal shape in mapped arrays [rows, channels, height, width], one for each file."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)])

    def take(self, rows: np.ndarray) -> torch.Tensor:
        """Return a copy of the images at `rows`, in that order."""
        first = self._parts[0]
        images = np.empty((len(rows), *first.shape[1:]), first.dtype)
        where = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(where):
            chosen = where == number
            images[chosen] = self._parts[number][rows[chosen] - self._starts[number]]
        return torch.from_numpy(images)
