"""The logit of a model before training."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from flambeau.errors import ModelError


def begin_at(base_rate: float, bias: Tensor) -> None:
    """Set the bias of a logit to the log-odds of `base_rate`, the share of ones among the labels.

    Otherwise the first updates move all weights towards it at once, and asynchronous workers, whose
    gradients are late, overshoot it together.
    """
    require_share(base_rate, f"base_rate={base_rate!r}")
    with torch.no_grad():
        bias.fill_(math.log(base_rate / (1.0 - base_rate)))


def require_share(value: Any, named: str) -> None:
    """Raise `ModelError` unless a value is a share of ones, strictly between 0 and 1."""
    if not (isinstance(value, Real) and 0.0 < float(value) < 1.0):
        raise ModelError(f"{named}: give the share of ones among the labels, between 0 and 1")
