"""Training on a share of the rows whose label is 0."""

from dataclasses import replace
from typing import final

import numpy as np
import torch

from flambeau.data.batch import Batch
from flambeau.errors import DataError


@final
class KeepNegatives:
    """Transform that leaves out all but a share of the rows with label 0.

    The choice depends on the seed, epoch and index of a batch, so the same seed and number of
    workers leave out the same rows. If no row of a batch would remain, one remains without a label,
    which contributes nothing.
    """

    def __init__(self, share: float, label: str, seed: int) -> None:
        self._share, self._label, self._seed = share, label, seed

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the rows to train on; its `left_out` counts the others."""
        label = batch[self._label]
        if not isinstance(label, torch.Tensor) or label.numel() != batch.size:
            raise DataError(
                f"keep_negatives drops rows by column '{self._label}', which must hold one "
                "number in each row"
            )
        draws = np.random.default_rng([self._seed, batch.epoch, batch.index]).random(batch.size)
        kept = (label.reshape(-1) != 0) | (torch.from_numpy(draws) < self._share)
        rows = kept.nonzero()[:, 0]
        if len(rows) == batch.size:
            return batch
        if not len(rows):
            return self._nothing(batch, label)
        return replace(batch.take(rows), left_out=batch.size - len(rows))

    def _nothing(self, batch: Batch, label: torch.Tensor) -> Batch:
        first = batch.slice(0, 1)
        missing = torch.full_like(label[:1], torch.nan, dtype=torch.float32)
        return replace(
            first, columns={**first.columns, self._label: missing}, left_out=batch.size - 1
        )
