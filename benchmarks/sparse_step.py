"""Samples per second of a DeepFM on one worker and one server, against torch's own embeddings."""

import argparse
import itertools
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from deepfm import samples_per_second
from measure import interleave, report
from turns import HERE, TRIAL_BLOCKS, Side, fastest

CORES = 2
STRATEGIES = ("parameter_server", "hybrid")
VARIANTS = list(itertools.product(("adagrad", "sparse_adam"), ("1", "2")))

Variant = tuple[str, str]


def main() -> None:
    """Both sides have the same two cores; the peer chooses its optimizer and its threads."""
    options = parse_options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        variant = VARIANTS[0] if options.quick else fastest_variant(directory)
        for strategy in STRATEGIES:
            measure(strategy, variant, options.pairs, directory / strategy)


def measure(strategy: str, variant: Variant, pairs: int, directory: Path) -> None:
    """Take turns, after a block of each that is not counted."""
    with (
        ours(strategy, pairs + 1, directory / "ours") as our_side,
        peer(variant, pairs + 1, directory / "peer") as peer_side,
    ):
        our_side.block()
        peer_side.block()
        found = interleave(
            lambda: samples_per_second(our_side.block()),
            lambda: samples_per_second(peer_side.block()),
            pairs,
        )
    named = f"{variant[0]}/{variant[1]} threads"
    report(f"sparse_step/{strategy}", found, "samples/s", peer_variant=named)


def fastest_variant(directory: Path) -> Variant:
    """The peer's best way, in a short run of all of them against each other."""
    with ExitStack() as stack:
        sides = {
            variant: stack.enter_context(peer(variant, TRIAL_BLOCKS, directory / "-".join(variant)))
            for variant in VARIANTS
        }
        return fastest(sides)


def ours(strategy: str, blocks: int, directory: Path) -> Side:
    """`fb.fit`: the worker has both cores, and the server fits in between."""
    script = str(HERE / "sides" / "flambeau_deepfm.py")
    return Side(directory, [[sys.executable, script, strategy, str(blocks)]])


def peer(variant: Variant, blocks: int, directory: Path) -> Side:
    """The torch script."""
    script = str(HERE / "sides" / "torch_deepfm.py")
    return Side(directory, [[sys.executable, script, *variant, str(blocks)]])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    options.pairs = 2 if options.quick else options.pairs
    return options


if __name__ == "__main__":
    main()
