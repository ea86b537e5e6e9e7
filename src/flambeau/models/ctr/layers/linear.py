"""Linear layers of recommender models."""

from typing import final

import torch
from torch import Tensor, nn


@final
class Linear(nn.Linear):
    """Layer `nn.Linear`, followed by ReLU if `relu` is set.

    ReLU is part of the layer, not a separate module, so parameters of the layers of a perceptron
    are named `layers.0`, `layers.1` and so on. Weights are initialised as in Glorot and Bengio
    (2010), and biases with zero.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, relu: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        self.relu = relu

    def reset_parameters(self) -> None:
        """Set the first weights."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the outputs [..., outputs] of `input` [..., inputs]."""
        out = super().forward(input)
        return torch.relu_(out) if self.relu else out

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"
