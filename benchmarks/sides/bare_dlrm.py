"""The most that two workers could reach: the dense part of DLRM, with rows that are just there.

bare_dlrm.py DIRECTORY
Each computes by itself: no tables, no data, no exchange.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from dlrm import BATCH_ROWS, DENSE, DIM, FIELDS, LEARNING_RATE, TIMED, WARM, WORKERS
from flambeau_dlrm import build
from shared_turns import SharedTurn
from torch import Tensor, nn

from flambeau.clusters.process_starter import KEEP_MEMORY


class Rows(nn.Module):
    """Stands for the tables: the same rows for any ids."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.randn(BATCH_ROWS, FIELDS, DIM) * 0.05)

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, fields, dim], with a gradient that nobody takes."""
        return self.rows.detach().requires_grad_()


def dense_step() -> Callable[[], None]:
    """Return a training step of the dense part, on rows that are just there."""
    model = build()
    model.embeddings = Rows()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)
    ids = torch.zeros(BATCH_ROWS, FIELDS, dtype=torch.int64)
    dense, label = torch.randn(BATCH_ROWS, DENSE), torch.randint(2, (BATCH_ROWS,)).float()

    def step() -> None:
        F.binary_cross_entropy_with_logits(model(ids, dense), label).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def work(rank: int, cores: list[int], directory: Path) -> None:
    """Steps, as long as there are turns."""
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    step = dense_step()
    turn = SharedTurn(directory, rank, WORKERS, WARM, TIMED)
    goes_on = turn.wait()
    while goes_on:
        step()
        goes_on = turn.step_done()


def main(directory: Path) -> None:
    os.environ.update(KEEP_MEMORY)  # as workers have it
    cores = sorted(os.sched_getaffinity(0))
    worker_of = multiprocessing.get_context("spawn").Process
    workers = [
        worker_of(target=work, args=(rank, cores, directory), daemon=True)
        for rank in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    workers[0].join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
