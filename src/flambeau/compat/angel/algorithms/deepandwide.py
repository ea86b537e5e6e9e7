"""Wide & Deep."""

import torch
from torch import Tensor

from flambeau.compat.angel.algorithms.base import IN_ORDER, WithFields
from flambeau.compat.angel.algorithms.parts import (
    dense_mats,
    layers,
    linear,
    require_one_output,
    scaled,
)


class DeepAndWide(WithFields):
    """Logistic regression plus dense layers over embeddings."""

    def __init__(
        self,
        input_dim: int,
        n_fields: int,
        embedding_dim: int,
        fc_dims: list[int],
        encode: str = "onehot",
    ):
        require_one_output(fc_dims)
        mats = dense_mats(n_fields * embedding_dim, fc_dims)
        super().__init__("deepandwide", input_dim, embedding_dim, n_fields, mats, encode)
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
        fields: Tensor = IN_ORDER,
    ) -> Tensor:
        """Return probabilities [batch_size], given the rows that were looked up."""
        products = scaled(values, embeddings)
        flat = self.by_field(batch_size, index, fields, products).flatten(1)
        wide = linear(batch_size, index, values, weights)
        deep = layers(flat, mats, 0, self.layers)
        return torch.sigmoid(wide + deep.view(-1) + bias.view(-1))
