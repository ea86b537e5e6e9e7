"""The logit that a model gives before it has learnt anything."""

import math

import torch
from torch import Tensor

from flambeau.errors import ModelError


def begin_at(base_rate: float, bias: Tensor) -> None:
    """Set the bias of a logit to that of `base_rate`, the share of ones among the labels.

    Otherwise the first updates move all weights towards it at once, and the more so when gradients
    are late: workers that do not wait for each other overshoot it together.
    """
    if not 0.0 < base_rate < 1.0:
        raise ModelError(
            f"base_rate={base_rate!r}: give the share of ones among the labels, between 0 and 1"
        )
    with torch.no_grad():
        bias.fill_(math.log(base_rate / (1.0 - base_rate)))
