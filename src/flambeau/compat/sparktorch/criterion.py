"""The loss of a batch, by the rules of SparkTorch."""

from typing import Any, final

from torch import Tensor, nn

from flambeau.data.batch import Batch


@final
class Criterion:
    """Loss `criterion(output, label)`; the label is float, or long if that fails.

    Without a label, the target is the input (auto-encoder).
    """

    def __init__(self, criterion: nn.Module, features: str, label: str | None) -> None:
        self._criterion, self._target = criterion, label or features
        self._classes = False

    def __call__(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the loss."""
        target: Any = batch[self._target]
        if self._classes:
            return self._of_classes(output, target)
        try:
            return self._of_numbers(output, target)
        except (RuntimeError, ValueError, IndexError) as error:
            if target.numel() != len(target):
                raise  # several numbers are not a class
            try:
                loss = self._of_classes(output, target)
            except (RuntimeError, ValueError, IndexError):
                raise error from None
        self._classes = True
        return loss

    def _of_numbers(self, output: Tensor, target: Tensor) -> Tensor:
        shape = output.shape if target.numel() == output.numel() else (len(target), -1)
        return _tensor(self._criterion(output, target.to(output.dtype).reshape(shape)))

    def _of_classes(self, output: Tensor, target: Tensor) -> Tensor:
        return _tensor(self._criterion(output, target.long().flatten()))


def _tensor(loss: Any) -> Tensor:
    assert isinstance(loss, Tensor)
    return loss
