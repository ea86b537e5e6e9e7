"""Samples per second of a DeepFM on one worker and one server, against torch's own embeddings."""

import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path

from deepfm import samples_per_second
from measure import report
from turns import HERE, Side, fastest, take_turns

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
        found = take_turns(our_side, peer_side, pairs, samples_per_second)
    named = f"{variant[0]}/{variant[1]} threads"
    report(f"sparse_step/{strategy}", found, "samples/s", peer_variant=named)


def fastest_variant(directory: Path) -> Variant:
    """The peer's best way."""
    return fastest(VARIANTS, lambda each, blocks: peer(each, blocks, directory / "-".join(each)))


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
