"""Samples per second of `fb.fit` with two workers, against a hand-written torch DDP script."""

import argparse
import itertools
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from measure import Pairs, interleave, report
from turns import HERE, Side
from workloads import WORKERS, WORKLOADS, Workload

VARIANTS = list(itertools.product(("dataloader", "indexed"), ("fused", "plain")))
TRIAL_BLOCKS = 3

Variant = tuple[str, str]


def main() -> None:
    """Measure each workload."""
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    for name in options.workloads:
        with tempfile.TemporaryDirectory() as directory:
            variant = fastest_variant(name, Path(directory))
            pairs = measure(name, variant, Path(directory), options.pairs)
            report(f"all_reduce/{name}", pairs, "samples/s", peer_variant="/".join(variant))


def fastest_variant(name: str, directory: Path) -> Variant:
    """The peer's best way, in a short run of all of them against each other."""
    with ExitStack() as stack:
        sides = {
            variant: stack.enter_context(
                peer(name, variant, TRIAL_BLOCKS, directory / "-".join(variant))
            )
            for variant in VARIANTS
        }
        times = {variant: [side.block()] for variant, side in sides.items()}
        for _ in range(TRIAL_BLOCKS - 1):
            for variant, side in sides.items():
                times[variant].append(side.block())
    return min(VARIANTS, key=lambda variant: statistics.median(times[variant][1:]))


def measure(name: str, variant: Variant, directory: Path, pairs: int) -> Pairs:
    """Samples per second of both sides; their first block is not counted."""
    workload, blocks = WORKLOADS[name], pairs + 1
    with (
        ours(name, blocks, directory / "ours") as our_side,
        peer(name, variant, blocks, directory / "peer") as peer_side,
    ):
        our_side.block()
        peer_side.block()
        return interleave(
            lambda: speed(workload, our_side), lambda: speed(workload, peer_side), pairs
        )


def speed(workload: Workload, side: Side) -> float:
    """Samples per second in the next block of a side."""
    return workload.samples_per_second(side.block())


def ours(name: str, blocks: int, directory: Path) -> Side:
    """`fb.fit`, which pins its workers itself: one core and one thread each."""
    script = str(HERE / "sides" / "flambeau_fit.py")
    return Side(directory, [[sys.executable, script, name, str(blocks)]])


def peer(name: str, variant: Variant, blocks: int, directory: Path) -> Side:
    """The DDP script, pinned to the same cores."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < WORKERS:
        raise SystemExit(f"this needs {WORKERS} cores; {len(cores)} may be used")
    script = str(HERE / "sides" / "torch_ddp.py")
    return Side(
        directory,
        [
            [sys.executable, script, name, *variant, str(blocks), str(rank), str(cores[rank])]
            for rank in range(WORKERS)
        ],
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=12)
    return parser.parse_args()


if __name__ == "__main__":
    main()
