"""The deep part of a model."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

from torch import Tensor, nn
from torch.nn import functional

from flambeau.errors import ModelError

#: Numbers that a processor handles at once.
_ALIGNED = 8
#: Narrower layers gain nothing.
_WIDE = 64


@final
class Perceptron(nn.Module):
    """Linear layers of the sizes `hidden`, each with ReLU; with `outputs`, one more without.

    `batch_norm` normalises before each ReLU, `dropout` is the share that is left out behind it.
    `width` is that of the result: `outputs`, or the last hidden size.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | None = None,
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if any(size < 1 for size in hidden):
            raise ModelError(f"layers of sizes {tuple(hidden)}: each must be at least 1")
        if not 0.0 <= dropout < 1.0:
            raise ModelError(f"dropout={dropout}: must be at least 0 and below 1")
        layers: list[nn.Module] = []
        for before, after in pairwise((inputs, *hidden)):
            layers.append(linear(before, after))
            layers += [nn.BatchNorm1d(after)] if batch_norm else []
            layers.append(nn.ReLU(inplace=True))
            layers += [nn.Dropout(dropout)] if dropout else []
        self.width = (inputs, *hidden)[-1]
        if outputs is not None:
            layers.append(linear(self.width, outputs))
            self.width = outputs
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, inputs] to [rows, width]"""
        out: Tensor = self.layers(x)
        return out


@final
class AlignedLinear(nn.Linear):
    """A linear layer that trains on CPUs a quarter faster if its inputs are no multiple of 8.

    Products of matrices are slow if their rows begin anywhere in memory, so columns of zeros fill
    them up. Parameters are those of `nn.Linear`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]"""
        missing = -self.in_features % _ALIGNED if self.in_features > _WIDE else 0
        if not (missing and self.training and input.device.type == "cpu"):
            return super().forward(input)
        padded, weight = (functional.pad(each, (0, missing)) for each in (input, self.weight))
        return functional.linear(padded, weight, self.bias)


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A layer whose weights begin as Glorot and Bengio (2010) have them, with biases of zero."""
    layer = AlignedLinear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
