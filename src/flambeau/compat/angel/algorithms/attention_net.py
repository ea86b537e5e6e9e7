"""Self-attention over fields, with one or several heads."""

import torch
from torch import Tensor

from flambeau.compat.angel.algorithms.base import WithMats
from flambeau.compat.angel.algorithms.parts import (
    dense_mats,
    layers,
    linear,
    require_one_output,
    scaled,
    xavier,
)


class AttentionNet(WithMats):
    """Self-attention between fields, followed by dense layers."""

    def __init__(
        self,
        input_dim: int,
        n_fields: int,
        embedding_dim: int,
        fc_dims: list[int],
        heads: int = 1,
        attention_dim: int = 8,
    ):
        require_one_output(fc_dims)
        attended = heads * attention_dim
        projections = [xavier(embedding_dim, attended) for _ in range(4)]
        mats = [*projections, *dense_mats(n_fields * attended, fc_dims)]
        super().__init__("attention_net", input_dim, embedding_dim, n_fields, mats)
        self.layers, self.heads, self.attention_dim = len(fc_dims), heads, attention_dim

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
        shape = [batch_size, self.n_fields, self.heads, self.attention_dim]
        query = (vectors @ mats[0]).view(shape).transpose(1, 2)
        key = (vectors @ mats[1]).view(shape).transpose(1, 2)
        value = (vectors @ mats[2]).view(shape).transpose(1, 2)
        scores = query @ key.transpose(2, 3) / self.attention_dim**0.5
        mixed = (torch.softmax(scores, 3) @ value).transpose(1, 2).flatten(2)
        seen = torch.relu(mixed + vectors @ mats[3]).flatten(1)
        deep = layers(seen, mats, 4, self.layers)
        first = linear(batch_size, index, values, weights)
        return torch.sigmoid(first + deep.view(-1) + bias.view(-1))
