"""Estimates of the frequency of items from the batches of training."""

from typing import final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError

#: Odd factors for multiplying ids; the upper bits of the product are well mixed.
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


@final
class ItemFrequency(nn.Module):
    """Share of each item among the rows, as a moving average over about `1 / rate` batches.

    Shares are kept in `buckets` (a power of 2) by two hashes of the id, of which the smaller one
    counts, so memory does not depend on the number of items. During the first `1 / rate` batches it
    is the mean of all. Like other running statistics, it is averaged over workers.
    """

    shares: Tensor
    batches: Tensor

    def __init__(self, buckets: int = 1 << 16, rate: float = 0.001) -> None:
        super().__init__()
        if buckets < 2 or buckets & (buckets - 1):
            raise ModelError(f"buckets={buckets}: give a power of 2, such as {1 << 16}")
        if not 0.0 < rate <= 1.0:
            raise ModelError(f"rate={rate}: give a share of a batch, above 0 and up to 1")
        self._shift, self.rate = 64 - (buckets.bit_length() - 1), rate
        self.register_buffer("shares", torch.zeros(len(_FACTORS), buckets))
        self.register_buffer("batches", torch.zeros(()))

    @torch.no_grad()
    def count(self, ids: Tensor) -> None:
        """Count the items [rows] of a batch."""
        if not len(ids):
            return
        self.batches += 1
        rate = self.batches.reciprocal().clamp(min=self.rate)
        self.shares *= 1.0 - rate
        each = (rate / len(ids)).expand(len(ids))
        for shares, places in zip(self.shares, self._places(ids), strict=True):
            shares.index_add_(0, places, each)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the estimated share of each item [rows]; 0 for one that was never counted."""
        places = self._places(ids)
        found = [shares[place] for shares, place in zip(self.shares, places, strict=True)]
        return torch.stack(found).amin(dim=0)

    def _places(self, ids: Tensor) -> list[Tensor]:
        mask = (1 << (64 - self._shift)) - 1
        return [((ids * _signed(factor)) >> self._shift) & mask for factor in _FACTORS]


def _signed(bits: int) -> int:
    """Return 64 bits as the int64 that torch uses for them."""
    return bits - (1 << 64) if bits >= 1 << 63 else bits
