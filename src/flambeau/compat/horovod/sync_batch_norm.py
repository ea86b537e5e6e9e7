"""Batch normalization over all ranks, on any device."""

from typing import Any

import torch
from torch import Tensor, nn

from flambeau.compat.horovod.engine.running import is_running, place
from flambeau.compat.horovod.operations.handles import Sum
from flambeau.compat.horovod.operations.reducing import allreduce


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """nn.BatchNorm1d/2d/3d with the mean and variance of all ranks in training.

    Gradients on each rank are those of the sum of all ranks' losses.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalized input, of the same shape."""
        self._check_input_dim(input)
        alone = not is_running() or place().size == 1
        if alone or not (self.training or not self.track_running_stats):
            return super().forward(input)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        wide = input.double() if input.dtype == torch.float64 else input.float()
        rows = wide.new_full((1,), input.numel() / max(1, input.shape[1]))
        totals = allreduce(torch.cat([wide.sum(dims), rows]), op=Sum)
        count = totals[-1].detach()
        mean = totals[:-1] / count
        # Deviations from the common mean, so that a large mean does not cost precision.
        squares = allreduce((wide - mean.view(shape)).square().sum(dims), op=Sum)
        variance = squares / count
        self._track(mean.detach(), variance.detach(), count)
        scaled = (wide - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum: Any = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
