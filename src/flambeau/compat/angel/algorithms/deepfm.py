"""DeepFM."""

import torch
from torch import Tensor

from flambeau.compat.angel.algorithms.base import WithMats
from flambeau.compat.angel.algorithms.parts import (
    dense_mats,
    layers,
    linear,
    require_one_output,
    scaled,
    second_order,
)


class DeepFM(WithMats):
    """A factorization machine and dense layers over the same embeddings."""

    def __init__(self, input_dim: int, n_fields: int, embedding_dim: int, fc_dims: list[int]):
        require_one_output(fc_dims)
        mats = dense_mats(n_fields * embedding_dim, fc_dims)
        super().__init__("deepfm", input_dim, embedding_dim, n_fields, mats)
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
        """Probabilities from rows that were looked up. [batch_size]"""
        products = scaled(values, embeddings)
        first = linear(batch_size, index, values, weights)
        second = second_order(batch_size, index, products)
        flat = products.view(batch_size, self.n_fields * self.embedding_dim)
        deep = layers(flat, mats, 0, self.layers)
        return torch.sigmoid(first + second + deep.view(-1) + bias.view(-1))
