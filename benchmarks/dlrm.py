"""What both sides of the recommender benchmark train: DLRM at the Criteo-Kaggle shape."""

import numpy as np
import torch
from torch import Tensor

#: Distinct values of the 26 categories of the Criteo-Kaggle data.
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
FIELDS, DENSE, DIM = len(CARDINALITIES), 13, 16
BOTTOM, TOP = (512, 256, 64), (512, 256)
WORKERS = 2
BATCH_ROWS = 2048
#: Of real logs an epoch has thousands: with few, its end would be a part of what is measured.
STEPS_PER_EPOCH = 192
WARM, TIMED = 8, 24
ZIPF = 1.05
LEARNING_RATE = 0.1


def clicks() -> dict[str, Tensor]:
    """Random rows with as many ids of each field as there are, as unequal as those of clicks."""
    generator = np.random.default_rng(0)
    rows = STEPS_PER_EPOCH * BATCH_ROWS * WORKERS
    ids = np.stack([zipf(generator, count, rows) for count in CARDINALITIES], axis=1)
    return {
        "ids": torch.from_numpy(ids),
        "dense": torch.from_numpy(generator.standard_normal((rows, DENSE), np.float32)),
        "label": torch.from_numpy(generator.integers(0, 2, rows).astype(np.float32)),
    }


def zipf(generator: np.random.Generator, count: int, rows: int) -> np.ndarray:
    """Numbers below `count`, the k-th about as often as k ** -ZIPF."""
    drawn = generator.random(rows)
    power = 1.0 - ZIPF
    values = ((1.0 + drawn * ((count + 1.0) ** power - 1.0)) ** (1.0 / power)).astype(np.int64) - 1
    return np.clip(values, 0, count - 1)


def samples_per_second(seconds: float) -> float:
    """The speed of all workers, from the seconds of a block's timed steps."""
    return TIMED * BATCH_ROWS * WORKERS / seconds
