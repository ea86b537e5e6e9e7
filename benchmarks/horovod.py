"""Horovod's interface against torch's own: DistributedOptimizer and DDP, small sums, latency.

Two ranks, one core and one thread each, measure both sides in turns in the same processes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from measure import Pairs, interleave, report
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from workloads import LEARNING_RATE, MOMENTUM, WORKERS, WORKLOADS, Workload

import flambeau.compat.horovod as hvd

MEASURED = ("mlp", "resnet18", "names", "latency")
SUMS, SMALL = 1000, 64
CALLS = 300


def main() -> None:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("measured", nargs="*", default=MEASURED)
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    if "HOROVOD_RANK" in os.environ:
        be_rank(options.measured, options.pairs)
        return
    with tempfile.TemporaryDirectory() as folder:
        given = {"HOROVOD_SIZE": str(WORKERS), "OMP_NUM_THREADS": "1", "MEETING": folder}
        given["FLAMBEAU_MEETING_DIR"] = f"{folder}/meeting"
        environment = {**os.environ, **given}
        ranks = [
            subprocess.Popen(
                [sys.executable, *sys.argv], env={**environment, "HOROVOD_RANK": str(rank)}
            )
            for rank in range(WORKERS)
        ]
        sys.exit(max(each.wait() for each in ranks))


def be_rank(measured: list[str], pairs: int) -> None:
    hvd.init()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[hvd.rank() % len(cores)]})
    store = f"file://{os.environ['MEETING']}/store"
    dist.init_process_group("gloo", init_method=store, rank=hvd.rank(), world_size=WORKERS)
    for name in measured:
        if name in WORKLOADS:
            speed, higher, unit = optimizers(WORKLOADS[name], pairs), True, "samples/s"
        elif name == "names":
            speed, higher, unit = names(pairs), False, "s"
        else:
            speed, higher, unit = latency(pairs), False, "s"
        if hvd.rank() == 0:
            report(f"horovod/{name}", speed, unit, higher_is_better=higher)
    dist.destroy_process_group()
    hvd.shutdown()


def optimizers(workload: Workload, pairs: int) -> Pairs:
    """Samples per second with DistributedOptimizer and with DDP."""
    sides = [ours(workload), peer(workload)]
    for each in sides:
        next(each)
    return interleave(lambda: next(sides[0]), lambda: next(sides[1]), pairs)


def ours(workload: Workload) -> Iterator[float]:
    model = workload.build()
    sgd = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return blocks(workload, model, hvd.DistributedOptimizer(sgd, model.named_parameters()))


def peer(workload: Workload) -> Iterator[float]:
    model = DistributedDataParallel(
        workload.build(), forward_sync_buffers=False, gradient_as_bucket_view=True
    )
    sgd = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return blocks(workload, model, sgd)


def blocks(
    workload: Workload, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[float]:
    """Yield the speed of one block of steps after the other."""
    x, y = workload.data()
    x, y = x[hvd.rank() :: WORKERS], y[hvd.rank() :: WORKERS]
    while True:
        seconds = 0.0
        for step in range(workload.warm + workload.timed):
            if step == workload.warm:
                dist.barrier()
                seconds = time.perf_counter()
            first = step * workload.batch_size % (len(x) - workload.batch_size)
            rows = slice(first, first + workload.batch_size)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        yield workload.samples_per_second(time.perf_counter() - seconds)


def names(pairs: int) -> Pairs:
    """Seconds of 1,000 small sums by name, and of one sum of them all."""
    tensors = [torch.ones(SMALL) for _ in range(SUMS)]

    def by_name() -> None:
        handles = [hvd.allreduce_async_(each, name=f"n{i}") for i, each in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    def one_buffer() -> None:
        flat = torch.cat(tensors)
        dist.all_reduce(flat)
        for each, part in zip(tensors, flat.split(SMALL), strict=True):
            each.copy_(part)

    by_name()
    return interleave(timed(by_name, 1), timed(one_buffer, 1), pairs)


def latency(pairs: int) -> Pairs:
    """Seconds of a sum of 4 bytes."""
    one = torch.ones(1)

    def small() -> Tensor:
        return hvd.allreduce_(one, name="small")

    small()
    return interleave(timed(small, CALLS), timed(lambda: dist.all_reduce(one), CALLS), pairs)


def timed(call: Callable[[], object], times: int) -> Callable[[], float]:
    """Return a function that measures the seconds of a call."""

    def measure() -> float:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - began) / times

    return measure


if __name__ == "__main__":
    main()
