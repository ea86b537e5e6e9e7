"""The seam between the training loop and the way replicas agree."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Clipping:
    """Limits on gradients, applied to the gradient of all workers together."""

    norm: float | None = None
    value: float | None = None

    def apply(self, optimizer: Optimizer) -> None:
        """Clip the gradients of an optimizer's parameters in place."""
        if self.value is None and self.norm is None:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self.value is not None:
            nn.utils.clip_grad_value_(parameters, self.value)
        if self.norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.norm)


class Strategy(ABC):
    """One worker's side of the agreement between replicas.

    A training step calls `forward`, scales the loss by the worker's share of the rows, calls
    `backward` once per part of the batch, and then `update`.
    """

    @abstractmethod
    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        """Take charge of the model: all replicas are equal afterwards. Returns its `forward`.

        `own_step`: the user's code calls backward and update itself, in any order.
        """

    @abstractmethod
    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of a scaled loss; `last` is True for the step's final part."""

    @abstractmethod
    def update(self, name: str = "") -> None:
        """Agree on the gradients of optimizer `name`, apply them and clear them."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the replicas equal, buffers too, as before saving or evaluating."""

    def weightless(self, on: bool) -> None:  # noqa: B027 - most strategies need not know
        """Announce that the rows of the next steps count for nothing (this worker has none)."""

    def communication_seconds(self) -> float:
        """Seconds of a recent step spent waiting for others; 0 where that is not known."""
        return 0.0


def average_buffers(model: nn.Module, total: Callable[[Tensor], Tensor], workers: int) -> None:
    """Replace floating-point buffers (running statistics) by their mean over all workers."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    if not buffers or workers == 1:
        return
    doubles = any(b.dtype is torch.float64 for b in buffers)
    dtype = torch.float64 if doubles else torch.float32
    with torch.no_grad():
        flat = total(torch.cat([b.detach().flatten().to(dtype) for b in buffers])) / workers
        parts = torch.split(flat, [b.numel() for b in buffers])
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.copy_(part.view_as(buffer))
