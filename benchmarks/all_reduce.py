"""Samples per second of `fb.fit` with two workers, against a hand-written torch DDP script."""

import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path

from measure import report
from turns import HERE, Side, fastest, take_turns
from workloads import WORKERS, WORKLOADS

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
                speed = WORKLOADS[name].samples_per_second
                pairs = take_turns(our_side, peer_side, options.pairs, speed)
            report(f"all_reduce/{name}", pairs, "samples/s", peer_variant="/".join(variant))


def fastest_variant(name: str, directory: Path) -> Variant:
    """The peer's best way."""
    return fastest(
        VARIANTS, lambda each, blocks: peer(name, each, blocks, directory / "-".join(each))
    )


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
