"""The binary files of CIFAR-10 and CIFAR-100."""

import os
from typing import Any, final

import numpy as np

from flambeau.data.sources.image_parts import LabelledImages
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
class CifarSource(LabelledImages):
    """Columns `image` (uint8 [batch, 3, 32, 32]) and `label` (int64; the fine one of CIFAR-100)."""

    def __init__(self, path: Paths, *, classes: int = 10, split: str = "train") -> None:
        self._arguments = (path, classes, split)
        super().__init__(
            [_read(file, classes) for file in find_files(_inside(path, classes, split))]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments


def _inside(path: Paths, classes: int, split: str) -> Paths:
    if not isinstance(path, str) or not os.path.isdir(path):
        return path
    if (classes, split) not in _FILES:
        raise DataError(f"split={split!r}: use 'train' or 'test'")
    return os.path.join(path, _FILES[classes, split])


def _read(path: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images [rows, 3, height, width], which stay in the file, and labels."""
    records = _records(path, classes)
    images = records[:, -_PIXELS:].reshape(-1, *_SHAPE)
    return images, _labels(records, path, classes)


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
