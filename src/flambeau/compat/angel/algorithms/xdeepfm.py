"""xDeepFM."""

from collections.abc import Sequence

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


class XDeepFM(WithFields):
    """A compressed interaction network (layers of `cin_dims` maps) beside dense layers."""

    def __init__(
        self,
        input_dim: int,
        n_fields: int,
        embedding_dim: int,
        fc_dims: list[int],
        cin_dims: Sequence[int] = (16, 16),
        encode: str = "onehot",
    ):
        require_one_output(fc_dims)
        maps = zip([n_fields, *cin_dims], cin_dims, strict=False)
        filters = [xavier(before * n_fields, dim) for before, dim in maps]
        mats = [*filters, xavier(sum(cin_dims), 1), *dense_mats(n_fields * embedding_dim, fc_dims)]
        super().__init__("xdeepfm", input_dim, embedding_dim, n_fields, mats, encode)
        self.layers, self.cin_layers = len(fc_dims), len(cin_dims)

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
        vectors = self.by_field(batch_size, index, fields, scaled(values, embeddings))
        maps, sums = vectors, [torch.zeros(batch_size, 0)]
        for layer in range(self.cin_layers):
            # All maps times all fields, [batch, maps x fields, dim], are combined into the next
            # maps.
            products = (maps.unsqueeze(2) * vectors.unsqueeze(1)).flatten(1, 2)
            maps = torch.relu((products.transpose(1, 2) @ mats[layer]).transpose(1, 2))
            sums.append(maps.sum(2))
        crossed = torch.cat(sums, 1) @ mats[self.cin_layers]
        deep = layers(vectors.flatten(1), mats, self.cin_layers + 1, self.layers)
        first = linear(batch_size, index, values, weights)
        return torch.sigmoid(first + (crossed + deep).view(-1) + bias.view(-1))
