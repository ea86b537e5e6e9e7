"""Images and labels of several files, numbered through."""

from collections.abc import Sequence
from typing import final

import numpy as np
import torch

from flambeau.data.batch import Batch
from flambeau.data.source import IndexedSource


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


class LabelledImages(IndexedSource):
    """Columns `image` (as in the files) and `label` (int64)."""

    columns = ("image", "label")
    positional = ("image",)
    labels = ("label",)

    def __init__(self, files: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Take the images and the labels of each file."""
        self._images = ImageParts([images for images, _ in files])
        self._labels = np.concatenate([labels for _, labels in files])

    def __len__(self) -> int:
        return len(self._labels)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        parts = {"image": self._images.take, "label": self._take_labels}
        return Batch({name: parts[name](rows) for name in columns or self.columns}, len(rows))

    def _take_labels(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self._labels[rows])
