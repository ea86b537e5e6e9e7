"""Deep & cross network."""

import torch
from torch import Tensor

from flambeau.compat.angel.algorithms.base import IN_ORDER, WithFields
from flambeau.compat.angel.algorithms.parts import (
    dense_mats,
    layers,
    linear,
    require_one_output,
    scaled,
    xavier,
)


class DeepAndCross(WithFields):
    """Cross layers x -> x0 (x w) + b + x, `cross_depth` of them, beside dense layers."""

    def __init__(
        self,
        input_dim: int,
        n_fields: int,
        embedding_dim: int,
        fc_dims: list[int],
        cross_depth: int = 3,
        encode: str = "onehot",
    ):
        require_one_output(fc_dims)
        width = n_fields * embedding_dim
        crosses = [(xavier(width, 1), torch.zeros(1, width)) for _ in range(cross_depth)]
        flat = [mat for cross in crosses for mat in cross]
        mats = [*flat, xavier(width, 1), *dense_mats(width, fc_dims)]
        super().__init__("dcn", input_dim, embedding_dim, n_fields, mats, encode)
        self.layers, self.cross_depth = len(fc_dims), cross_depth

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
        crossed = flat
        for depth in range(self.cross_depth):
            crossed = flat * (crossed @ mats[2 * depth]) + mats[2 * depth + 1] + crossed
        last = 2 * self.cross_depth
        wide = linear(batch_size, index, values, weights)
        deep = layers(flat, mats, last + 1, self.layers)
        return torch.sigmoid(wide + (crossed @ mats[last] + deep).view(-1) + bias.view(-1))
