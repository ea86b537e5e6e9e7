"""The demo's data, the handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels."""

from typing import Any

import numpy as np

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

TRAIN_ROWS = 1_437


def train() -> Arrays:
    """Four fifths: float32 images [rows, 1, 8, 8] from 0 to 1, and their int64 labels."""
    return _rows(slice(None, TRAIN_ROWS))


def held_out() -> Arrays:
    """The last fifth."""
    return _rows(slice(TRAIN_ROWS, None))


def _rows(part: slice) -> Arrays:
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.target))[part]
    images = digits.images[rows, np.newaxis] / 16
    return images.astype(np.float32), digits.target[rows].astype(np.int64)
