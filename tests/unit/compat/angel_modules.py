"""Modules by Angel's contract, one for each type, that nobody makes for us."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from flambeau.compat.angel import torchscript

INPUT_DIM, DIM, FIELDS = 12, 3, 2


class Named(nn.Module):
    def __init__(self, kind: str, rows: int = 10):
        super().__init__()
        self.kind, self.input_dim = kind, INPUT_DIM
        self.bias = nn.Parameter(torch.zeros(1))
        self.weights = nn.Parameter(torch.zeros(rows, 1))

    @torch.jit.export
    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy(output, targets)

    @torch.jit.export
    def get_type(self) -> str:
        return self.kind


class BiasWeight(Named):
    def __init__(self, kind: str = "BIAS_WEIGHT", rows: int = 10):
        super().__init__(kind, rows)

    def forward_(
        self,
        batch_size: int,
        index: Tensor,
        feats: Tensor,
        values: Tensor,
        bias: Tensor,
        weights: Tensor,
    ) -> Tensor:
        sums = torch.zeros(batch_size, 1).index_add(0, index, weights * values.view(-1, 1))
        return torch.sigmoid(sums + bias)

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        return self.forward_(batch_size, index, feats, values, self.bias, self.weights[feats])

    @torch.jit.export
    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy(output.view(-1), targets)


class WithEmbedding(Named):
    def __init__(self, kind: str = "BIAS_WEIGHT_EMBEDDING", rows: int = 10):
        super().__init__(kind, rows)
        self.embedding_dim = DIM
        self.embedding = nn.Parameter(torch.zeros(rows, DIM))


class BiasWeightEmbedding(WithEmbedding):
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
        rows = torch.cat([weights, embeddings], 1) * values.view(-1, 1)
        sums = torch.zeros(batch_size, rows.size(1)).index_add(0, index, rows)
        return torch.sigmoid(sums[:, 0] + sums[:, 1:].square().sum(1) + bias)

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        embeddings = self.embedding[feats]
        weights = self.weights[feats]
        return self.forward_(batch_size, index, feats, values, self.bias, weights, embeddings)


class Mats(WithEmbedding):
    def __init__(self, rows: int = 10):
        super().__init__("BIAS_WEIGHT_EMBEDDING_MATS", rows)
        self.n_fields = FIELDS
        self.mats = [torch.linspace(-1, 1, FIELDS * DIM).view(-1, 1), torch.full((1, 1), 0.1)]

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
        first = torch.zeros(batch_size).index_add(0, index, weights.view(-1) * values)
        deep = embeddings.view(batch_size, self.n_fields * self.embedding_dim) @ mats[0] + mats[1]
        return torch.sigmoid(first + deep.view(-1) + bias)

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        looked_up = self.weights[feats], self.embedding[feats]
        return self.forward_(
            batch_size, index, feats, values, self.bias, looked_up[0], looked_up[1], self.mats
        )


class Field(WithEmbedding):
    def __init__(self, rows: int = 10):
        super().__init__("BIAS_WEIGHT_EMBEDDING_MATS_FIELD", rows)
        self.n_fields = FIELDS
        self.mats = [torch.linspace(-1, 1, FIELDS * DIM).view(FIELDS, DIM)]

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
        fields: Tensor,
    ) -> Tensor:
        terms = (embeddings * mats[0][fields]).sum(1) + weights.view(-1)
        return torch.sigmoid(torch.zeros(batch_size).index_add(0, index, terms * values) + bias)

    def forward(
        self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor, fields: Tensor
    ) -> Tensor:
        looked_up = self.weights[feats], self.embedding[feats]
        return self.forward_(
            batch_size,
            index,
            feats,
            values,
            self.bias,
            looked_up[0],
            looked_up[1],
            self.mats,
            fields,
        )


class OptionalFields(WithEmbedding):
    """As Angel's scripts write deepfm, dcn and others: `fields` has a default, whatever the type.

    `shape` is that of its output: Angel's differ in it.
    """

    def __init__(self, encode: str = "onehot", shape: tuple[int, ...] = (1, -1), rows: int = 10):
        several = encode != "onehot"
        kind = "BIAS_WEIGHT_EMBEDDING_MATS" + ("_FIELD" if several else "")
        super().__init__(kind, rows)
        self.n_fields, self.several, self.shape = FIELDS, several, list(shape)
        self.mats = [torch.linspace(-1, 1, FIELDS * DIM).view(FIELDS, DIM)]

    def forward_(
        self,
        batch_size,
        index,
        feats,
        values,
        bias,
        weights,
        embeddings,
        mats,
        fields=torch.Tensor([]),  # noqa: B008
    ):
        # type: (int, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, List[Tensor], Tensor) -> Tensor
        if not self.several:
            fields = torch.arange(self.n_fields).repeat(batch_size)
        terms = (embeddings * mats[0][fields]).sum(1) + weights.view(-1)
        sums = torch.zeros(batch_size).index_add(0, index, terms * values)
        return torch.sigmoid(sums + bias).view(self.shape)

    def forward(self, batch_size, index, feats, values, fields=torch.Tensor([])):  # noqa: B008
        # type: (int, Tensor, Tensor, Tensor, Tensor) -> Tensor
        rows, vectors = self.weights[feats], self.embedding[feats]
        return self.forward_(
            batch_size, index, feats, values, self.bias, rows, vectors, self.mats, fields
        )


class SeveralTasks(nn.Module):
    """As Angel's MMoE and ESMM: a type and arguments of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.input_dim, self.embedding_dim, self.mats = INPUT_DIM, DIM, [torch.zeros(DIM, 1)]
        self.embedding = nn.Parameter(torch.zeros(10, DIM))

    def forward_(
        self,
        batch_size: int,
        index: Tensor,
        feats: Tensor,
        embeddings: Tensor,
        mats: list[Tensor],
    ) -> Tensor:
        sums = torch.zeros(batch_size, self.embedding_dim).index_add(0, index, embeddings)
        return torch.sigmoid(sums @ mats[0])

    def forward(self, batch_size: int, index: Tensor, feats: Tensor) -> Tensor:
        return self.forward_(batch_size, index, feats, self.embedding[feats], self.mats)

    @torch.jit.export
    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy(output, targets)

    @torch.jit.export
    def get_type(self) -> str:
        return "EMBEDDINGS_MATS"


MODULES = [BiasWeight, BiasWeightEmbedding, Mats, Field, OptionalFields]


def saved(module: nn.Module, folder) -> str:
    """The module as a file."""
    path = folder / "model.pt"
    torchscript.write(torchscript.compiled(module), path)
    return str(path)
