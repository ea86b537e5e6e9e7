"""Differentiable operations: one function for tensors, and one for their gradients."""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

#: A function from tensors to the same number of tensors.
Operation = Callable[[Sequence[Tensor]], Sequence[Tensor]]


@final
class _Operation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, operation: Operation, gradient: Operation, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.gradient = gradient
        results = tuple(operation(tensors))
        ctx.mark_non_differentiable(*[each for each in results if not each.is_floating_point()])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *ctx.gradient([each.contiguous() for each in gradients])


def applied(
    operation: Operation, gradient: Operation, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the results of an operation. `gradient` maps their gradients to the tensors'."""
    results: tuple[Tensor, ...] = _Operation.apply(operation, gradient, *tensors)  # type: ignore[no-untyped-call]
    return results
