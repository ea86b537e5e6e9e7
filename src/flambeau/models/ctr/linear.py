"""A linear layer that trains faster on CPUs than torch's."""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from flambeau.models.ctr.one_dnn import by_one_dnn, gains

#: Numbers that a processor handles at once.
_ALIGNED = 8


@final
class Linear(nn.Linear):
    """`nn.Linear` whose large products oneDNN makes when it trains on rows [n, inputs].

    Weights begin as Glorot and Bengio (2010) have them, and biases with zero.
    """

    def reset_parameters(self) -> None:
        """The first weights."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]"""
        trains = self.training and torch.is_grad_enabled() and input.dim() == 2
        if trains and gains(input, input.numel() * self.out_features):
            return _Product.apply(  # type: ignore[no-any-return,no-untyped-call]
                input, self.weight, self.bias
            )
        return super().forward(input)


class _Product(Function):
    """Torch's own, for the sake of the gradient: its products are oneDNN's, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        with by_one_dnn():
            return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        with by_one_dnn():
            return (
                grads @ weight if needs_x else None,
                _of_weight(x, grads) if needs_weight else None,
                grads.sum(0) if needs_bias else None,
            )


def _of_weight(x: Tensor, grads: Tensor) -> Tensor:
    """[outputs, inputs]; rows that begin anywhere in memory are faster the other way round."""
    if x.shape[1] % _ALIGNED:
        return (x.t() @ grads).t()
    return grads.t() @ x
