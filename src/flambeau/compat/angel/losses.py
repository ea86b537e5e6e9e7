"""The loss that a model file contains."""

from typing import final

from torch import Tensor

from flambeau.compat.angel.torchscript import Scripted
from flambeau.data.batch import Batch
from flambeau.errors import DataError
from flambeau.training.losses import check_binary

LABEL = "label"


@final
class ExportedLoss:
    """Loss that calls `loss(output, targets)` of a scripted module."""

    #: Kind of the model's outputs, for metrics: probabilities.
    outputs = "bce_prob"

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted

    def __call__(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch, a scalar."""
        targets = batch[LABEL]
        if not isinstance(targets, Tensor):
            raise DataError(f"column '{LABEL}' must hold one number for each row")
        targets = targets.reshape(-1).to(output.dtype)
        check_binary("loss() of the model file", targets)
        loss: Tensor = self._scripted.module.loss(output, targets)
        return loss
