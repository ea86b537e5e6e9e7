"""What each CPU optimisation of recommender layers gains, on the dense part of DLRM.

Two processes compute by themselves, each on a core of its own as workers do; a pair is a block of
steps with everything and a block without one thing. Below 1.03 an optimisation does not pay.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from dlrm import DIM
from measure import Pairs, interleave, report

from flambeau.clusters.process_starter import KEEP_MEMORY
from flambeau.kernels.compiled import kernel
from flambeau.models.ctr.layers import pair_kernels, pairs

STEPS = 16
WORKERS = 2


Left = list[contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def replaced(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    """Give a module another function for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@kernel
def plain_products(first: Any, vectors: Any, out: Any) -> None:
    """Compute what `products_of_pairs` does, by plain loops."""
    rows, fields, dim = vectors.shape
    beside = first.shape[1]
    leading = min(beside, 1)
    count = fields + leading
    given = np.empty((count, dim), np.float32)
    for row in range(rows):
        for k in range(beside):
            given[0, k] = out[row, k] = first[row, k]
        given[leading:] = vectors[row]
        pair = beside
        for i in range(count):
            for j in range(i + 1, count):
                total = np.float32(0)
                for k in range(dim):
                    total += given[i, k] * given[j, k]
                out[row, pair] = total
                pair += 1


@kernel
def plain_gradients(grads: Any, first: Any, vectors: Any, of_first: Any, of_vectors: Any) -> None:
    """Compute what `gradients_of_pairs` does, by plain loops."""
    rows, fields, dim = vectors.shape
    beside = first.shape[1]
    leading = min(beside, 1)
    count = fields + leading
    given, found = np.empty((2, count, dim), np.float32)
    for row in range(rows):
        found[:] = 0
        for k in range(beside):
            given[0, k], found[0, k] = first[row, k], grads[row, k]
        given[leading:] = vectors[row]
        pair = beside
        for i in range(count):
            for j in range(i + 1, count):
                for k in range(dim):
                    found[i, k] += grads[row, pair] * given[j, k]
                    found[j, k] += grads[row, pair] * given[i, k]
                pair += 1
        for k in range(beside):
            of_first[row, k] = found[0, k]
        of_vectors[row] = found[leading:]


def without_pair_kernels() -> Left:
    """Products of pairs by torch's batched products."""
    return [replaced(pairs, "kernels_gain", lambda rows: False)]


def without_vectors() -> Left:
    """Products of pairs by kernels of plain loops."""
    return [
        replaced(pair_kernels, "products_of_pairs", plain_products),
        replaced(pair_kernels, "gradients_of_pairs", plain_gradients),
    ]


VARIANTS: dict[str, Callable[[], Left]] = {
    "pair_kernels": without_pair_kernels,
    "vectors": without_vectors,
}


@contextlib.contextmanager
def left_out(name: str) -> Iterator[None]:
    """Compute without one thing."""
    with contextlib.ExitStack() as stack:
        for each in VARIANTS[name]():
            stack.enter_context(each)
        yield


def work(core: int, names: list[str], count: int, results: "multiprocessing.Queue[object]") -> None:
    """Measure all variants on one core."""
    sys.path.append(str(Path(__file__).parent / "sides"))
    from bare_dlrm import dense_step

    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    step = dense_step()

    def block() -> float:
        started = time.perf_counter()
        for _ in range(STEPS):
            step()
        return time.perf_counter() - started

    for name in names:

        def without(name: str = name) -> float:
            with left_out(name):
                return block()

        block(), without()  # both are warm
        results.put((name, interleave(block, without, count)))


def main() -> None:
    """Print a line for each optimisation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(VARIANTS), help=", ".join(VARIANTS))
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    os.environ.update(KEEP_MEMORY)  # as workers have it
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    cores = sorted(os.sched_getaffinity(0))[:WORKERS]
    workers = [
        context.Process(
            target=work, args=(core, options.names, options.pairs, results), daemon=True
        )
        for core in cores
    ]
    for worker in workers:
        worker.start()
    found: dict[str, list[Pairs]] = {}
    for _ in range(len(options.names) * len(workers)):
        name, measured = results.get(timeout=600)
        found.setdefault(name, []).append(measured)
    for name, measured in found.items():
        both = [
            [statistics.fmean(values) for values in zip(*side, strict=True)]
            for side in zip(*((each.ours, each.peer) for each in measured), strict=True)
        ]
        report(
            f"layers/dlrm_without_{name}",
            Pairs(both[0], both[1]),
            f"seconds for {STEPS} steps",
            higher_is_better=False,
            dim=DIM,
        )


if __name__ == "__main__":
    main()
