"""The peer of the sparse-step benchmark: torch's embeddings and sparse optimizers, one process.

torch_deepfm.py OPTIMIZER THREADS BLOCKS DIRECTORY
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from deepfm import (
    BATCH_ROWS,
    DIM,
    FIELDS,
    IDS_PER_FIELD,
    LEARNING_RATE,
    STEPS_PER_EPOCH,
    TABLE_LEARNING_RATE,
    TIMED,
    WARM,
    DeepFM,
    data,
)
from torch import Tensor, nn
from turns import Turn

IDS = FIELDS * IDS_PER_FIELD
OPTIMIZERS = {"adagrad": torch.optim.Adagrad, "sparse_adam": torch.optim.SparseAdam}


def build() -> DeepFM:
    """The model, with rows that begin as ours do."""
    linear = nn.EmbeddingBag(IDS, 1, mode="sum", sparse=True)
    embedding = nn.Embedding(IDS, DIM, sparse=True)
    for table in (linear, embedding):
        nn.init.uniform_(table.weight, -0.05, 0.05)
    return DeepFM(linear, embedding)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled batches, for ever."""
    ids, labels = data()
    while True:
        order = torch.randperm(len(ids))
        for step in range(STEPS_PER_EPOCH):
            rows = order[step * BATCH_ROWS : (step + 1) * BATCH_ROWS]
            yield ids.index_select(0, rows), labels.index_select(0, rows)


def main(optimizer: str, threads: int, blocks: int, directory: Path) -> None:
    torch.set_num_threads(threads)
    model = build()
    tables = [model.linear.weight, model.embedding.weight]
    dense = torch.optim.Adam(model.deep.parameters(), lr=LEARNING_RATE, fused=True)
    sparse = OPTIMIZERS[optimizer](tables, lr=TABLE_LEARNING_RATE)
    turn = Turn(directory, WARM, TIMED)
    turn.wait()
    for step, (ids, labels) in zip(range(1, blocks * (WARM + TIMED) + 1), batches(), strict=False):
        loss = F.binary_cross_entropy_with_logits(model(ids), labels)
        loss.backward()
        for part in (dense, sparse):
            part.step()
            part.zero_grad(set_to_none=True)
        turn.step_done(step)


if __name__ == "__main__":
    name, threads, blocks, directory = sys.argv[1:]
    main(name, int(threads), int(blocks), Path(directory))
