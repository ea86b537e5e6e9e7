"""The deep part of a model."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.linear import Linear


@final
class Perceptron(nn.Module):
    """Linear layers of the sizes `hidden`, each with ReLU; with `outputs`, one more without.

    `batch_norm` normalises before each ReLU; `dropout` is the share of values dropped after it.
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
            layers.append(Linear(before, after, relu=not batch_norm))
            layers += [nn.BatchNorm1d(after), nn.ReLU(inplace=True)] if batch_norm else []
            layers += [nn.Dropout(dropout)] if dropout else []
        self.width = (inputs, *hidden)[-1]
        if outputs is not None:
            layers.append(Linear(self.width, outputs))
            self.width = outputs
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [rows, width] of `x` [rows, inputs]."""
        out: Tensor = self.layers(x)
        return out

    @property
    def output_bias(self) -> nn.Parameter:
        """Bias of the last layer."""
        last = self.layers[-1]
        assert isinstance(last, Linear), "made with outputs="
        return last.bias
