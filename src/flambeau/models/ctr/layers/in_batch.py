"""Each row's item against the items of the other rows of the batch."""

import math
from typing import final

import torch
from torch import Tensor, nn

from flambeau.data.jagged import Jagged, one_id
from flambeau.errors import DataError, ModelError
from flambeau.models.ctr.layers.item_frequency import ItemFrequency


@final
class InBatchLogits(nn.Module):
    """Logits [rows, rows] of users and items, for `loss="in_batch_softmax"`.

    Row i has user i's scores for all items of the batch; its own is on the diagonal, as it is. In
    training the others are corrected for how often they come as negatives (logQ): popular items
    would else be pushed away. Another row's copy of the same item is no negative, and gets -inf.
    In evaluation there is no correction, and each item is there once: ranks are those that serving
    will give.

    The frequency of items is estimated on the way, unless the rows say it (`probability`).
    """

    def __init__(
        self,
        temperature: float = 1.0,
        *,
        correct: bool = True,
        buckets: int = 1 << 16,
        rate: float = 0.001,
    ) -> None:
        super().__init__()
        if not (temperature > 0.0 and math.isfinite(temperature)):
            raise ModelError(f"temperature={temperature}: give a number above 0, such as 0.05")
        self.temperature = temperature
        self.frequency = ItemFrequency(buckets, rate) if correct else None
        #: Give the diagonal alone [rows], which needs no ids.
        self.pairs_only = False

    def forward(
        self, users: Tensor, items: Tensor, item: Tensor | Jagged, probability: Tensor | None = None
    ) -> Tensor:
        """Logits for vectors [rows, dim] of users and items; `item` has the items' ids.

        They are [rows], or those of the first of several fields.
        """
        if self.pairs_only:
            return (users * items).sum(dim=1) / self.temperature
        ids = one_id(item, "item")
        logits = (users @ items.T) / self.temperature
        if self.training and self.frequency is not None:
            logits = logits + self._correction(ids, probability)
        again = ids[:, None] == ids
        if not self.training:
            again |= again.tril(-1).any(dim=1)  # items that an earlier row has
        again.fill_diagonal_(False)
        return logits.masked_fill(again, -torch.inf)

    def _correction(self, ids: Tensor, probability: Tensor | None) -> Tensor:
        # The softmax does not change when a whole row is shifted: the diagonal is left alone.
        assert self.frequency is not None
        if probability is None:
            self.frequency.count(ids)
            probability = self.frequency(ids)
        elif bool((probability <= 0.0).any()):
            row = int((probability <= 0.0).nonzero()[0, 0])
            raise DataError(
                f"probability {probability[row].item():g} in row {row} of the batch: an item's "
                "share of the rows is above 0"
            )
        logs = probability.reshape(-1).log()
        return logs[:, None] - logs


def score_pairs_only(model: nn.Module) -> None:
    """Have a model give each row's own score [rows], which is all that predictions show."""
    for module in model.modules():
        if isinstance(module, InBatchLogits):
            module.pairs_only = True
