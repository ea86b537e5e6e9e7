"""Calibration of a model that was trained on a share of the negatives."""

import math
from typing import Any, final

import torch
from torch import Tensor, nn


def calibrated(output: Tensor, loss: str, keep: float) -> Tensor:
    """Return outputs as if the model had been trained on all negatives, not the share `keep`.

    With loss "bce", outputs are logits, and log(keep) is added. With "bce_prob", they are
    probabilities p, which become p / (p + (1 - p) / keep).
    """
    if loss == "bce":
        return output + math.log(keep)
    return output / (output + (1.0 - output) / keep)


def calibrate_in_use(model: nn.Module, loss: str, keep: float) -> None:
    """Make a model return calibrated outputs in evaluation mode, and its own in training."""
    model.register_forward_hook(_Calibrate(loss, keep))


@final
class _Calibrate:
    """Forward hook, as an object that can be copied and pickled with the model."""

    def __init__(self, loss: str, keep: float) -> None:
        self._loss, self._keep = loss, keep

    def __call__(self, model: nn.Module, inputs: Any, output: Any) -> Any:
        if model.training or not isinstance(output, torch.Tensor):
            return output
        return calibrated(output, self._loss, self._keep)
