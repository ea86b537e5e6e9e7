"""Logistic regression."""

import torch
from torch import Tensor
from torch.nn import functional

from flambeau.compat.angel.algorithms.base import Scriptable
from flambeau.compat.angel.algorithms.parts import linear


class LogisticRegression(Scriptable):
    """The sigmoid of bias + sum of weight x value."""

    def __init__(self, input_dim: int):
        super().__init__("lr", "BIAS_WEIGHT", input_dim, 0, 0)

    def forward_(
        self,
        batch_size: int,
        index: Tensor,
        feats: Tensor,
        values: Tensor,
        bias: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """Return probabilities [batch_size], given the rows that were looked up."""
        return torch.sigmoid(linear(batch_size, index, values, weights) + bias.view(-1))

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        """Return probabilities [batch_size] with the module's own rows."""
        weights = functional.embedding(feats, self.weights)
        return self.forward_(batch_size, index, feats, values, self.bias, weights)
