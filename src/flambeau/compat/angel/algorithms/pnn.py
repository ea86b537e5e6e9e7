"""Product-based neural network."""

import torch
from torch import Tensor

from flambeau.compat.angel.algorithms.base import WithMats
from flambeau.compat.angel.algorithms.parts import (
    dense_mats,
    layers,
    linear,
    pairs,
    require_one_output,
    scaled,
)


class ProductNetwork(WithMats):
    """Dense layers over the embeddings and the inner products of their pairs."""

    def __init__(self, input_dim: int, n_fields: int, embedding_dim: int, fc_dims: list[int]):
        require_one_output(fc_dims)
        width = n_fields * embedding_dim + n_fields * (n_fields - 1) // 2
        mats = dense_mats(width, fc_dims)
        super().__init__("pnn", input_dim, embedding_dim, n_fields, mats)
        self.layers = len(fc_dims)

    def forward_(
        self,
        batch_size: int,
        index: Tensor,
        feats: Tensor,
        values: Tensor,
        bias: Tensor,
        weights: Tensor,
        embeddings: Tensor,
        mats: list[Tensor],
    ) -> Tensor:
        """Return probabilities [batch_size], given the rows that were looked up."""
        vectors = scaled(values, embeddings).view(batch_size, self.n_fields, self.embedding_dim)
        one, other = pairs(self.n_fields)
        products = (vectors[:, one] * vectors[:, other]).sum(2)
        deep = layers(torch.cat([vectors.flatten(1), products], 1), mats, 0, self.layers)
        first = linear(batch_size, index, values, weights)
        return torch.sigmoid(first + deep.view(-1) + bias.view(-1))
