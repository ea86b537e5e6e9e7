"""What the modules of all model files share: the contract, but for `forward_`.

Their sparse parameters have one row, a placeholder: the rows of a training are in tables.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

PLACEHOLDER = 1


class Scriptable(nn.Module):
    """The attributes and exported methods of a model file."""

    def __init__(self, name: str, kind: str, input_dim: int, embedding_dim: int, n_fields: int):
        super().__init__()
        self.algorithm, self.kind = name, kind
        self.input_dim, self.embedding_dim, self.n_fields = input_dim, embedding_dim, n_fields
        self.bias = nn.Parameter(torch.zeros(1, 1))
        self.weights = nn.Parameter(torch.zeros(PLACEHOLDER, 1))

    @torch.jit.export
    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """The mean of the binary cross-entropy."""
        return functional.binary_cross_entropy(output.view(-1), targets.view(-1))

    @torch.jit.export
    def get_type(self) -> str:
        """What `forward_` takes."""
        return self.kind

    @torch.jit.export
    def get_name(self) -> str:
        """The algorithm."""
        return self.algorithm


class WithMats(Scriptable):
    """A module with dense weights; its rows have one id for each of `n_fields` fields."""

    def __init__(
        self, name: str, input_dim: int, embedding_dim: int, n_fields: int, mats: list[Tensor]
    ):
        kind = "BIAS_WEIGHT_EMBEDDING_MATS"
        super().__init__(name, kind, input_dim, embedding_dim, n_fields)
        self.embedding = nn.Parameter(torch.zeros(PLACEHOLDER, embedding_dim))
        self.mats = mats

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        """Probabilities from rows of its own. [batch_size]"""
        weights = functional.embedding(feats, self.weights)
        embeddings = functional.embedding(feats, self.embedding)
        return self.forward_(
            batch_size, index, feats, values, self.bias, weights, embeddings, self.mats
        )

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
        raise NotImplementedError
