"""The files of SVHN's cropped digits: `train_32x32.mat`, `test_32x32.mat`, `extra_32x32.mat`."""

import os
from typing import Any, final

import numpy as np

from flambeau.data.sources.image_parts import LabelledImages
from flambeau.data.sources.matlab import read_matlab
from flambeau.data.sources.paths import Paths, find_files
from flambeau.errors import DataError

_SHAPE = (32, 32, 3)
_SPLITS = ("train", "test", "extra")


@final
class SvhnSource(LabelledImages):
    """Columns `image` (uint8 [batch, 3, 32, 32]) and `label` (int64, the digit).

    The files have label 10 for the digit 0.
    """

    def __init__(self, path: Paths, *, split: str = "train") -> None:
        self._arguments = (path, split)
        super().__init__([_read(file) for file in find_files(_inside(path, split))])

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments


def _inside(path: Paths, split: str) -> Paths:
    if not isinstance(path, str) or not os.path.isdir(path):
        return path
    if split not in _SPLITS:
        raise DataError(f"split={split!r}: use 'train', 'test' or 'extra'")
    return os.path.join(path, f"{split}_32x32.mat")


def _read(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images [rows, 3, height, width], which stay in the file, and labels from 0 to 9."""
    arrays = read_matlab(path, ("X", "y"))
    pixels, marks = arrays["X"], arrays["y"].reshape(-1)
    # MATLAB leaves out the last axis of a single image.
    if pixels.dtype != np.uint8 or (*pixels.shape, 1)[:3] != _SHAPE or pixels.ndim > 4:
        raise DataError(
            f"{path} has no digits of SVHN: X is {pixels.dtype} {pixels.shape}, not uint8 "
            "(32, 32, 3, rows)"
        )
    images = pixels.reshape(*_SHAPE, -1, order="F").transpose(3, 2, 0, 1)
    if len(images) != len(marks):
        raise DataError(f"{path} has {len(images)} images but {len(marks)} labels")
    wrong = np.flatnonzero(~np.isin(marks, np.arange(1, 11)))
    if len(wrong):
        raise DataError(
            f"{path} row {wrong[0]} has label {marks[wrong[0]]}; SVHN has labels 1 to 10 (digit 0)"
        )
    return images, marks.astype(np.int64) % 10


def _reopen(path: Paths, split: str) -> SvhnSource:
    return SvhnSource(path, split=split)
