"""What both sides of the sparse-step benchmark train: the same DeepFM on the same clicks."""

import numpy as np
import torch
from torch import Tensor, nn

FIELDS = 26
IDS_PER_FIELD = 100_000
ZIPF = 1.05
DIM = 16
HIDDEN = 400
BATCH_ROWS = 2048
STEPS_PER_EPOCH = 100
WARM = 10
LEARNING_RATE = 1e-3
TABLE_LEARNING_RATE = 0.05
TIMED = STEPS_PER_EPOCH


class DeepFM(nn.Module):
    """A factorization machine and a perceptron on the same rows.

    `linear` gives the sum of one number for each id, `embedding` a row of 16 for each.
    """

    def __init__(self, linear: nn.Module, embedding: nn.Module) -> None:
        super().__init__()
        self.linear, self.embedding = linear, embedding
        self.deep = nn.Sequential(
            nn.Linear(FIELDS * DIM, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [batch] for ids [batch, fields]."""
        rows = self.embedding(ids)
        pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1)
        logits: Tensor = self.linear(ids)[:, 0] + pairs + self.deep(rows.flatten(1))[:, 0]
        return logits


def data() -> tuple[Tensor, Tensor]:
    """Ids [rows, fields] that are as unequal as those of click logs, and labels 0.0 or 1.0."""
    generator = np.random.default_rng(0)
    rows = STEPS_PER_EPOCH * BATCH_ROWS
    weights = np.arange(1.0, IDS_PER_FIELD + 1) ** -ZIPF
    bounds = np.cumsum(weights) / weights.sum()
    ids = np.searchsorted(bounds, generator.random((rows, FIELDS), np.float32))
    ids = np.minimum(ids, IDS_PER_FIELD - 1) + IDS_PER_FIELD * np.arange(FIELDS)
    labels = generator.integers(0, 2, rows).astype(np.float32)
    return torch.from_numpy(ids), torch.from_numpy(labels)


def samples_per_second(seconds: float) -> float:
    """The speed, from the seconds of a block's timed steps."""
    return TIMED * BATCH_ROWS / seconds
