"""The binary files of CIFAR-10 and CIFAR-100."""

import os
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from flambeau.data.batch import Batch, Column
from flambeau.data.source import IndexedSource
from flambeau.data.sources.image_parts import ImageParts
from flambeau.data.sources.mapping import map_file
from flambeau.data.sources.paths import Paths, find_files
from flambeau.errors import DataError

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_FILES = {
    (10, "train"): "data_batch_*.bin",
    (10, "test"): "test_batch.bin",
    (100, "train"): "train.bin",
    (100, "test"): "test.bin",
}


@final
class CifarSource(IndexedSource):
    """Columns `image` (uint8 [batch, 3, 32, 32]) and `label` (int64; the fine one of CIFAR-100)."""

    columns = ("image", "label")
    positional = ("image",)
    labels = ("label",)

    def __init__(self, path: Paths, *, classes: int = 10, split: str = "train") -> None:
        self._arguments = (path, classes, split)
        files = find_files(_inside(path, classes, split))
        parts = [_records(file, classes) for file in files]
        self._images = ImageParts([part[:, -_PIXELS:].reshape(-1, *_SHAPE) for part in parts])
        self._labels = np.concatenate(
            [_labels(part, file, classes) for part, file in zip(parts, files, strict=True)]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments

    def __len__(self) -> int:
        return len(self._labels)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        parts = {"image": self._images.take, "label": self._take_labels}
        return Batch({name: parts[name](rows) for name in columns or self.columns}, len(rows))

    def _take_labels(self, rows: np.ndarray) -> Column:
        return torch.from_numpy(self._labels[rows])


def _inside(path: Paths, classes: int, split: str) -> Paths:
    if not isinstance(path, str) or not os.path.isdir(path):
        return path
    if (classes, split) not in _FILES:
        raise DataError(f"split={split!r}: use 'train' or 'test'")
    return os.path.join(path, _FILES[classes, split])


def _records(path: str, classes: int) -> np.ndarray:
    memory = map_file(path)
    record = _PIXELS + (1 if classes == 10 else 2)
    if len(memory) % record:
        raise DataError(
            f"{path} is truncated or not a CIFAR-{classes} file: "
            f"{len(memory)} bytes is not a multiple of {record}"
        )
    return np.frombuffer(memory, np.uint8).reshape(-1, record)


def _labels(records: np.ndarray, path: str, classes: int) -> np.ndarray:
    labels = records[:, -_PIXELS - 1].astype(np.int64)
    wrong = np.flatnonzero(labels >= classes)
    if len(wrong):
        raise DataError(
            f"{path} record {wrong[0]} has label {labels[wrong[0]]}; "
            f"CIFAR-{classes} has labels 0 to {classes - 1}"
        )
    return labels


def _reopen(path: Paths, classes: int, split: str) -> CifarSource:
    return CifarSource(path, classes=classes, split=split)
