"""Linear layers that train faster on CPUs than torch's."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from flambeau.models.ctr.layers.large_work import in_one_thread
from flambeau.models.ctr.layers.one_dnn import by_one_dnn, gains

#: The weight and the bias (if there is one) of each layer.
Parameters = Sequence[Tensor | None]


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
        if train_faster([self], input):
            return trained([self], input)
        return _plain(input, self.weight, self.bias, self.relu)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"


def train_faster(layers: Sequence[Linear], x: Tensor) -> bool:
    """Whether `trained` takes less time with these rows than the layers do."""
    return (
        torch.is_grad_enabled()
        and x.dim() == 2
        and all(layer.training for layer in layers)
        and gains(x, len(x) * max(layer.weight.numel() for layer in layers))
    )


def trained(layers: Sequence[Linear], x: Tensor) -> Tensor:
    """What the layers give, one after the other; they are not called. [n, outputs]"""
    parameters = [each for layer in layers for each in (layer.weight, layer.bias)]
    relus = [layer.relu for layer in layers]
    return _Layers.apply(x, relus, *parameters)  # type: ignore[no-any-return,no-untyped-call]


class _Layers(Function):
    """Layers whose products are oneDNN's, in the gradient as well.

    Gradients between them are nobody else's, so they are changed where they are.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, relus: Sequence[bool], *parameters: Tensor | None) -> Tensor:
        values = [x]
        with by_one_dnn():
            for relu, weight, bias in zip(relus, parameters[::2], parameters[1::2], strict=True):
                layer = _with_relu if relu else functional.linear
                values.append(layer(values[-1], weight, bias))  # type: ignore[arg-type]
        ctx.relus = relus
        # What no ReLU made is not needed, and may change.
        ctx.save_for_backward(*values[:-1], values[-1] if relus[-1] else None, *parameters)
        return values[-1]

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        count, needs = len(ctx.relus), ctx.needs_input_grad
        values, parameters = ctx.saved_tensors[: count + 1], ctx.saved_tensors[count + 1 :]
        if torch.is_grad_enabled():
            return _differentiable(values[0], ctx.relus, parameters, grads, needs)
        if ctx.relus[-1]:
            grads = grads.clone(memory_format=torch.contiguous_format)
        found: list[Tensor | None] = []
        with by_one_dnn():
            for layer in reversed(range(count)):
                needs_weight, needs_bias = needs[2 + 2 * layer : 4 + 2 * layer]
                sums = _cut(grads, values[layer + 1]) if ctx.relus[layer] else grads.sum(0)
                of_weight = grads.t() @ values[layer] if needs_weight else None
                found += [sums if needs_bias else None, of_weight]
                if layer or needs[0]:
                    grads = grads @ parameters[2 * layer]
        return grads if needs[0] else None, None, *reversed(found)


def _with_relu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[n, outputs]"""
    if bias is None or not in_one_thread():
        return _plain(x, weight, bias, relu=True)
    # Loads Numba, which models that are not trained do without.
    from flambeau.models.ctr.layers.relu_kernels import add_and_cut

    out = functional.linear(x, weight)
    add_and_cut(out.numpy(force=True), bias.numpy(force=True))
    return out


def _cut(grads: Tensor, out: Tensor) -> Tensor:
    """Make gradients of what ReLU gave into those of what it was given; their sum over the rows."""
    if not in_one_thread():
        torch.ops.aten.threshold_backward(grads, out, 0, grad_input=grads)
        return grads.sum(0)
    from flambeau.models.ctr.layers.relu_kernels import cut_and_sum

    sums = grads.new_empty(grads.shape[1])
    cut_and_sum(grads.numpy(), out.numpy(force=True), sums.numpy())
    return sums


def _differentiable(
    x: Tensor, relus: Sequence[bool], parameters: Parameters, grads: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients, with what it takes to find their own."""
    out = x
    for relu, weight, bias in zip(relus, parameters[::2], parameters[1::2], strict=True):
        assert weight is not None
        out = _plain(out, weight, bias, relu)
    given = (x, None, *parameters)
    wanted = [each for each, need in zip(given, needs, strict=True) if need and each is not None]
    found = iter(torch.autograd.grad(out, wanted, grads, create_graph=True))
    return tuple(next(found) if need else None for need in needs)


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    out = functional.linear(x, weight, bias)
    return functional.relu_(out) if relu else out
