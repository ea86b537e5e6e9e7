"""Samples per second of `fb.fit` with two workers, against a hand-written torch DDP script."""

import argparse
import itertools
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from measure import Pairs, interleave, report
from turns import HERE, TRIAL_BLOCKS, Side, fastest
from workloads import WORKERS, WORKLOADS, Workload

VARIANTS = list(itertools.product(("dataloader", "indexed"), ("fused", "plain")))

Variant = tuple[str, str]


def main() -> None:
    """Measure each workload."""
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    for name in WORKLOADS if options.workloads == "all" else options.workloads:
        with tempfile.TemporaryDirectory() as directory:
            variant = fastest_variant(name, Path(directory))
            blocks, folder = options.pairs + 1, Path(directory)
            with (
                ours(name, blocks, folder / "ours") as our_side,
                peer(name, variant, blocks, folder / "peer") as peer_side,
            ):
                pairs = measure(WORKLOADS[name], our_side, peer_side, options.pairs)
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
        return fastest(sides)


def measure(workload: Workload, our_side: Side, peer_side: Side, pairs: int) -> Pairs:
    """Samples per second of both sides; their first block is not counted."""
    our_side.block()
    peer_side.block()
    return interleave(lambda: speed(workload, our_side), lambda: speed(workload, peer_side), pairs)


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
    parser.add_argument("workloads", nargs="*", default="all", choices=[*WORKLOADS, "all"])
    parser.add_argument("--pairs", type=int, default=12)
    return parser.parse_args()


if __name__ == "__main__":
    main()
