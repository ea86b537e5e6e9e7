"""The peer of the all-reduce benchmark: one process of a hand-written DDP training.

torch_ddp.py WORKLOAD LOADER OPTIMIZER BLOCKS RANK CORE DIRECTORY

With `env` for RANK and CORE, a launcher has set both.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from turns import Turn
from workloads import LEARNING_RATE, MOMENTUM, WORKERS, WORKLOADS, Workload


def dataloader_batches(workload: Workload, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As in the tutorials: a DataLoader that collates items."""
    dataset = TensorDataset(*workload.data())
    sampler = DistributedSampler(dataset, WORKERS, rank, drop_last=True)
    loader = DataLoader(dataset, workload.batch_size, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def indexed_batches(workload: Workload, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As a hurried expert writes it: whole batches by their row numbers."""
    x, y = workload.data()
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(workload.rows, generator=generator)[rank::WORKERS]
        for step in range(workload.steps_per_epoch):
            rows = order[step * workload.batch_size : (step + 1) * workload.batch_size]
            yield x.index_select(0, rows), y.index_select(0, rows)


LOADERS = {"dataloader": dataloader_batches, "indexed": indexed_batches}


def main(
    workload: Workload, loader: str, optimizer_kind: str, blocks: int, rank: int, directory: Path
) -> None:
    by_file = f"file://{directory}/rendezvous"
    method = "env://" if "MASTER_ADDR" in os.environ else by_file
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=WORKERS)
    model = DistributedDataParallel(
        workload.build(), forward_sync_buffers=False, gradient_as_bucket_view=True
    )
    fused = optimizer_kind == "fused"
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=fused
    )
    batches = LOADERS[loader](workload, rank)
    turn = Turn(directory, workload.warm, workload.timed) if rank == 0 else None
    if turn is not None:
        turn.wait()
    for step in range(1, workload.steps(blocks) + 1):
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if turn is not None:
            turn.step_done(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    name, loader, optimizer_kind, blocks, rank, core, directory = sys.argv[1:]
    if core == "env":
        rank = os.environ["RANK"]
    else:
        os.sched_setaffinity(0, {int(core)})
    main(WORKLOADS[name], loader, optimizer_kind, int(blocks), int(rank), Path(directory))
