"""Attentional factorization machine."""

import torch
from torch import Tensor

from flambeau.compat.angel.algorithms.base import WithMats
from flambeau.compat.angel.algorithms.parts import (
    linear,
    pairs,
    scaled,
    xavier,
)


class AttentionFM(WithMats):
    """A factorization machine whose pairs are weighted by attention."""

    def __init__(self, input_dim: int, n_fields: int, embedding_dim: int, attention_dim: int = 8):
        attention = [xavier(embedding_dim, attention_dim), torch.zeros(1, attention_dim)]
        mats = [*attention, xavier(attention_dim, 1), xavier(embedding_dim, 1)]
        super().__init__("attention_fm", input_dim, embedding_dim, n_fields, mats)

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
        products = vectors[:, one] * vectors[:, other]
        scores = torch.relu(products @ mats[0] + mats[1]) @ mats[2]
        pooled = (torch.softmax(scores, 1) * products).sum(1)
        first = linear(batch_size, index, values, weights)
        return torch.sigmoid(first + (pooled @ mats[3]).view(-1) + bias.view(-1))
