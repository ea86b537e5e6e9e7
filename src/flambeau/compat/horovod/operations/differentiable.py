"""Operations with gradients: what one does to tensors, and another to their gradients."""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

#: From tensors to as many others.
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
    """Return the results of an operation. `gradient` turns their gradients into the tensors'."""
    results: tuple[Tensor, ...] = _Operation.apply(operation, gradient, *tensors)  # type: ignore[no-untyped-call]
    return results
