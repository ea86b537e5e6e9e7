"""A linear layer that trains faster on CPUs than torch's."""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from flambeau.models.ctr.large_work import in_one_thread
from flambeau.models.ctr.one_dnn import by_one_dnn, gains


@final
class Linear(nn.Linear):
    """`nn.Linear`, or with `relu` that and ReLU; it trains faster on many rows [n, inputs].

    Weights begin as Glorot and Bengio (2010) have them, and biases with zero.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, relu: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        self.relu = relu

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
                input, self.weight, self.bias, self.relu
            )
        out = super().forward(input)
        return functional.relu_(out) if self.relu else out

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"


class _Product(Function):
    """Torch's own, for the sake of the gradient: its products are oneDNN's, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        with by_one_dnn():
            out = _with_relu(x, weight, bias) if relu else functional.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, out if relu else None)
        return out

    @staticmethod
    def backward(
        ctx: Any, grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight, out = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        of_bias = None
        if out is not None:
            grads, of_bias = _before_relu(grads, out)
        elif needs_bias:
            of_bias = grads.sum(0)
        with by_one_dnn():
            return (
                grads @ weight if needs_x else None,
                grads.t() @ x if needs_weight else None,
                of_bias if needs_bias else None,
                None,
            )


def _with_relu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[n, outputs]"""
    if bias is None or not in_one_thread():
        return functional.relu_(functional.linear(x, weight, bias))
    # Loads Numba, which models that are not trained do without.
    from flambeau.models.ctr.relu_kernels import add_and_cut

    out = functional.linear(x, weight)
    add_and_cut(out.numpy(force=True), bias.numpy(force=True))
    return out


def _before_relu(grads: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of what ReLU was given [n, outputs], and its sum over the rows."""
    if torch.is_grad_enabled() or not in_one_thread():  # if enabled, it needs a gradient itself
        grads = torch.ops.aten.threshold_backward(grads, out, 0)
        return grads, grads.sum(0)
    from flambeau.models.ctr.relu_kernels import cut_and_sum

    cut, sums = torch.empty_like(out), out.new_empty(out.shape[1])
    arrays = (each.numpy(force=True) for each in (grads.contiguous(), out, cut, sums))
    cut_and_sum(*arrays)
    return cut, sums
