"""Batch normalisation with statistics over all workers, on any device that can all-reduce."""

from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn


class _SumOverWorkers(torch.autograd.Function):
    """Sum over workers whose gradient is the sum over workers."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total


@final
class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm like nn.BatchNorm1d/2d/3d, with the mean and variance of all workers in training.

    Sums are taken of deviations from the first worker's mean, to keep precision when the mean is
    large. `muted` rows get normalised but do not count.
    """

    muted = False

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch norm needs at least 2 dimensions, got {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input, of the same shape."""
        self._check_input_dim(input)
        if not (self.training or self.running_mean is None):
            return super().forward(input)
        shape = [1, -1] + [1] * (input.dim() - 2)
        dims = [d for d in range(input.dim()) if d != 1]
        shift = input.detach().mean(dims)
        dist.broadcast(shift, src=0)
        centred = input - shift.view(shape)
        count = input.new_full((1,), 0.0 if self.muted else input.numel() / input.shape[1])
        factor = 0.0 if self.muted else 1.0
        local = torch.cat([centred.sum(dims) * factor, centred.square().sum(dims) * factor, count])
        total: Tensor = _SumOverWorkers.apply(local)  # type: ignore[no-untyped-call]
        rows = total[-1]
        sums, squares = total[:-1].chunk(2)
        mean = sums / rows
        variance = squares / rows - mean.square()
        self._track((mean + shift).detach(), variance.detach(), rows.detach())
        scale = torch.rsqrt(variance + self.eps)
        result: Tensor = (centred - mean.view(shape)) * scale.view(shape)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result

    def _track(self, mean: Tensor, variance: Tensor, rows: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * rows / (rows - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


def convert(module: nn.Module) -> nn.Module:
    """Replace every batch norm by one over all workers with the same weights; return the module."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        synced = SyncBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
        )
        synced.weight, synced.bias = module.weight, module.bias
        synced.running_mean, synced.running_var = module.running_mean, module.running_var
        synced.num_batches_tracked = module.num_batches_tracked
        synced.training = module.training
        return synced
    for name, child in module.named_children():
        setattr(module, name, convert(child))
    return module
