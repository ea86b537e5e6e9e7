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

import torch
from dlrm import DIM
from measure import Pairs, interleave, report

from flambeau.clusters.process_starter import KEEP_MEMORY
from flambeau.models.ctr.layers import linear, pairs, perceptron

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


def never(*_: object) -> bool:
    """Return that the way without the optimisation is taken."""
    return False


def without_fused_relu() -> Left:
    """ReLU, bias and their gradients by torch, in several passes."""
    return [replaced(linear, "in_one_thread", never)]


def without_joint_layers() -> Left:
    """Layer after layer by torch's own autograd; products by oneDNN all the same."""
    off = [replaced(each, "train_faster", never) for each in (linear, perceptron)]
    return [*off, linear.by_one_dnn()]


def without_one_dnn() -> Left:
    """Products by torch's default library."""
    return [replaced(each, "by_one_dnn", contextlib.nullcontext) for each in (linear, pairs)]


def without_pair_kernels() -> Left:
    """Products of pairs by torch's batched products."""
    return [replaced(pairs, "in_one_thread", never)]


def without_any_of_linear() -> Left:
    """Linear layers as torch has them: none of the first three."""
    off = [replaced(each, "train_faster", never) for each in (linear, perceptron)]
    return [*off, replaced(pairs, "by_one_dnn", contextlib.nullcontext)]


VARIANTS: dict[str, Callable[[], Left]] = {
    "fused_relu": without_fused_relu,
    "joint_layers": without_joint_layers,
    "one_dnn": without_one_dnn,
    "any_of_linear": without_any_of_linear,
    "pair_kernels": without_pair_kernels,
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
