"""Factorization machine."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from flambeau.compat.angel.algorithms.base import PLACEHOLDER, Scriptable
from flambeau.compat.angel.algorithms.parts import linear, scaled, second_order


class FactorizationMachine(Scriptable):
    """Logistic regression plus the dot products of all pairs of embeddings."""

    def __init__(self, input_dim: int, embedding_dim: int, n_fields: int = 0):
        super().__init__("fm", "BIAS_WEIGHT_EMBEDDING", input_dim, embedding_dim, n_fields)
        self.embedding = nn.Parameter(torch.zeros(PLACEHOLDER, embedding_dim))

    def forward_(
        self,
        batch_size: int,
        index: Tensor,
        feats: Tensor,
        values: Tensor,
        bias: Tensor,
        weights: Tensor,
        embeddings: Tensor,
    ) -> Tensor:
        """Return probabilities [batch_size], given the rows that were looked up."""
        first = linear(batch_size, index, values, weights)
        second = second_order(batch_size, index, scaled(values, embeddings))
        return torch.sigmoid(first + second + bias.view(-1))

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        """Return probabilities [batch_size] with the module's own rows."""
        weights = functional.embedding(feats, self.weights)
        embeddings = functional.embedding(feats, self.embedding)
        return self.forward_(batch_size, index, feats, values, self.bias, weights, embeddings)
