"""The handwritten digits that come with scikit-learn: 1,797 images of 8 x 8 pixels."""

import numpy as np
from sklearn.datasets import load_digits

Arrays = tuple[np.ndarray, np.ndarray]

TRAIN_ROWS = 1_437


def train() -> Arrays:
    """1,437 images, float32 [rows, 1, 8, 8] from 0 to 1, and their int64 labels."""
    return _rows(slice(None, TRAIN_ROWS))


def valid() -> Arrays:
    """The other 360."""
    return _rows(slice(TRAIN_ROWS, None))


def _rows(part: slice) -> Arrays:
    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.target))[part]
    image = digits.images[rows, np.newaxis] / 16
    return image.astype(np.float32), digits.target[rows].astype(np.int64)
