"""Base classes of the modules in model files: the whole contract except `forward_`.

Their sparse parameters have one row, a placeholder: the rows of a training are in tables.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from flambeau.compat.angel.algorithms.parts import added_by_field

PLACEHOLDER = 1
ENCODINGS = ("onehot", "multihot")
#: Fields of a batch whose rows have one id for each field, in order.
IN_ORDER = torch.empty(0, dtype=torch.int64)


class Scriptable(nn.Module):
    """Attributes and exported methods of a model file."""

    def __init__(self, name: str, kind: str, input_dim: int, embedding_dim: int, n_fields: int):
        super().__init__()
        self.algorithm, self.kind = name, kind
        self.input_dim, self.embedding_dim, self.n_fields = input_dim, embedding_dim, n_fields
        self.bias = nn.Parameter(torch.zeros(1, 1))
        self.weights = nn.Parameter(torch.zeros(PLACEHOLDER, 1))

    @torch.jit.export
    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy."""
        return functional.binary_cross_entropy(output.view(-1), targets.view(-1))

    @torch.jit.export
    def get_type(self) -> str:
        """Return the type, which determines the arguments of `forward_`."""
        return self.kind

    @torch.jit.export
    def get_name(self) -> str:
        """Return the name of the algorithm."""
        return self.algorithm


class WithMats(Scriptable):
    """A module with dense weights; its rows have one id for each of `n_fields` fields."""

    def __init__(
        self,
        name: str,
        input_dim: int,
        embedding_dim: int,
        n_fields: int,
        mats: list[Tensor],
        kind: str = "BIAS_WEIGHT_EMBEDDING_MATS",
    ):
        super().__init__(name, kind, input_dim, embedding_dim, n_fields)
        self.embedding = nn.Parameter(torch.zeros(PLACEHOLDER, embedding_dim))
        self.mats = mats

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        """Return probabilities [batch_size] with the module's own rows."""
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
        """Return probabilities [batch_size], given the rows that were looked up."""
        raise NotImplementedError


class WithFields(WithMats):
    """A module with dense weights whose rows may have any number of ids for a field.

    With `encode="onehot"`, rows have one id for each field, in order. With "multihot", each id
    comes with its field, and the vectors of a field are added.
    """

    def __init__(
        self,
        name: str,
        input_dim: int,
        embedding_dim: int,
        n_fields: int,
        mats: list[Tensor],
        encode: str,
    ):
        several = encode == "multihot"
        kind = f"BIAS_WEIGHT_EMBEDDING_MATS{'_FIELD' if several else ''}"
        super().__init__(name, input_dim, embedding_dim, n_fields, mats, kind)
        self.several = several

    def forward(
        self,
        batch_size: int,
        index: Tensor,
        feats: Tensor,
        values: Tensor,
        fields: Tensor = IN_ORDER,
    ) -> Tensor:
        """Return probabilities [batch_size] with the module's own rows."""
        weights = functional.embedding(feats, self.weights)
        embeddings = functional.embedding(feats, self.embedding)
        return self.forward_(
            batch_size, index, feats, values, self.bias, weights, embeddings, self.mats, fields
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
        fields: Tensor = IN_ORDER,
    ) -> Tensor:
        """Return probabilities [batch_size], given the rows that were looked up."""
        raise NotImplementedError

    def by_field(self, batch_size: int, index: Tensor, fields: Tensor, products: Tensor) -> Tensor:
        """Return the vectors of each row's fields [batch_size, n_fields, dim]."""
        if self.several:
            products = added_by_field(batch_size, index, fields, products, self.n_fields)
        return products.view(batch_size, self.n_fields, self.embedding_dim)
