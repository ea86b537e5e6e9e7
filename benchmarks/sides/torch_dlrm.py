"""The peer of the recommender benchmark: a plain DLRM with torch's sparse embeddings, one process.

torch_dlrm.py TABLES THREADS PRODUCTS BLOCKS DIRECTORY     blocks of steps, by turns
TABLES is `one` (all fields in one EmbeddingBag) or `many` (one for each field). PRODUCTS is `torch`
or `bf16`, which allows torch to compute products of float32 in bf16.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from dlrm import (
    BATCH_ROWS,
    BOTTOM,
    CARDINALITIES,
    DENSE,
    DIM,
    FIELDS,
    LEARNING_RATE,
    STEPS_PER_EPOCH,
    TIMED,
    TOP,
    WARM,
    WORKERS,
    clicks,
)
from torch import Tensor, nn
from turns import Turn


def perceptron(sizes: Sequence[int], *, ends_with_relu: bool) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width, following in itertools.pairwise(sizes):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*(layers if ends_with_relu else layers[:-1]))


class PlainDLRM(nn.Module):
    """Numbers through a perceptron, ids through tables, and the dot products of all pairs."""

    def __init__(self, cardinalities: Sequence[int], *, one_table: bool) -> None:
        super().__init__()
        counts = torch.tensor([0, *cardinalities]).cumsum(0)
        self.one_table = one_table
        self.register_buffer("first", counts[:-1])
        sizes = [int(counts[-1])] if one_table else list(cardinalities)
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, DIM, mode="sum", sparse=True) for n in sizes)
        for table in self.tables:
            nn.init.uniform_(table.weight, -0.05, 0.05)
        self.bottom = perceptron((DENSE, *BOTTOM, DIM), ends_with_relu=True)
        vectors = len(cardinalities) + 1
        # The gradient of index_select takes half the time of that of [:, i, j].
        first, second = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("pairs", first * vectors + second)
        self.top = perceptron((DIM + vectors * (vectors - 1) // 2, *TOP, 1), ends_with_relu=False)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        """Logits [batch]."""
        bottom = self.bottom(dense)
        vectors = torch.cat([bottom[:, None], self.rows(ids)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        products = products.index_select(1, self.pairs)
        logits: Tensor = self.top(torch.cat([bottom, products], dim=1))[:, 0]
        return logits

    def rows(self, ids: Tensor) -> Tensor:
        """The rows of all fields. [batch, fields, dim]"""
        if self.one_table:
            flat = (ids + self.first).reshape(-1, 1)
            return self.tables[0](flat).view(*ids.shape, DIM)  # type: ignore[no-any-return]
        columns = ids.unbind(1)
        found = [table(ids[:, None]) for table, ids in zip(self.tables, columns, strict=True)]
        return torch.stack(found, dim=1)

    def dense_parameters(self) -> list[nn.Parameter]:
        """All but the tables."""
        return [*self.bottom.parameters(), *self.top.parameters()]


def optimizers(model: PlainDLRM) -> list[torch.optim.Optimizer]:
    """Both are plain SGD, as in the reference."""
    return [
        torch.optim.SGD(model.dense_parameters(), lr=LEARNING_RATE, fused=True),
        torch.optim.SGD(model.tables.parameters(), lr=LEARNING_RATE),
    ]


def train_step(
    model: PlainDLRM, parts: Sequence[torch.optim.Optimizer], batch: dict[str, Tensor]
) -> None:
    """One update."""
    loss = F.binary_cross_entropy_with_logits(model(batch["ids"], batch["dense"]), batch["label"])
    loss.backward()
    for part in parts:
        part.step()
        part.zero_grad(set_to_none=True)


def batches(columns: dict[str, Tensor], steps: int) -> Iterator[dict[str, Tensor]]:
    """Shuffled batches, for ever."""
    while True:
        order = torch.randperm(len(columns["label"]))
        for step in range(steps):
            rows = order[step * BATCH_ROWS : (step + 1) * BATCH_ROWS]
            yield {name: column.index_select(0, rows) for name, column in columns.items()}


def main(tables: str, threads: int, products: str, blocks: int, directory: Path) -> None:
    torch.set_num_threads(threads)
    if products != "torch":
        torch.backends.mkldnn.matmul.fp32_precision = products
    torch.manual_seed(0)
    model = PlainDLRM(CARDINALITIES, one_table=tables == "one")
    parts = optimizers(model)
    # As many rows in a block as our workers together have.
    turn = Turn(directory, WARM * WORKERS, TIMED * WORKERS)
    turn.wait()
    steps = blocks * (WARM + TIMED) * WORKERS
    data = batches(clicks(), STEPS_PER_EPOCH * WORKERS)
    for step, batch in zip(range(1, steps + 1), data, strict=False):
        train_step(model, parts, batch)
        turn.step_done(step)


if __name__ == "__main__":
    assert len(CARDINALITIES) == FIELDS
    name, threads, products, blocks, directory = sys.argv[1:]
    main(name, int(threads), products, int(blocks), Path(directory))
