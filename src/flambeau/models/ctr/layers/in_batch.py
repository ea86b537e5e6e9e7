"""Scores of each row's item against the items of the other rows of the batch."""

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

    Row i has user i's scores for all items of the batch; its own, on the diagonal, is unchanged. In
    training the others are corrected for how often they occur as negatives (logQ), since training
    would otherwise push popular items away. The same item in another row is not a negative, and
    gets -inf. In evaluation there is no correction, and each item occurs once: ranks are those that
    serving would give.

    The frequency of items is estimated during training, unless the data provides it
    (`probability`).
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
        #: Return only the diagonal [rows], which needs no ids.
        self.pairs_only = False

    def forward(
        self, users: Tensor, items: Tensor, item: Tensor | Jagged, probability: Tensor | None = None
    ) -> Tensor:
        """Return logits for vectors [rows, dim] of users and items.

        `item` are the items' ids [rows], or ids [rows, fields], of which the first identifies an
        item.
        """
        if self.pairs_only:
            return (users * items).sum(dim=1) / self.temperature
        ids = one_id(item, "item")
        logits = (users @ items.T) / self.temperature
        if self.training and self.frequency is not None:
            logits = logits + self._correction(ids, probability)
        again = ids[:, None] == ids
        if not self.training:
            again |= again.tril(-1).any(dim=1)  # items of earlier rows
        again.fill_diagonal_(False)
        return logits.masked_fill(again, -torch.inf)

    def _correction(self, ids: Tensor, probability: Tensor | None) -> Tensor:
        # Shifting a whole row does not change its softmax: the diagonal stays unchanged.
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
    """Make a model return only each row's own score [rows], which is what predictions need."""
    for module in model.modules():
        if isinstance(module, InBatchLogits):
            module.pairs_only = True
