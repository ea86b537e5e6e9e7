"""Samples per second of two asynchronous workers and a server, against a torch DDP script."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from all_reduce import VARIANTS, fastest_variant, peer
from measure import report
from turns import HERE, Side, take_turns
from workloads import WORKLOADS

WORKLOAD = "mlp"


def main() -> None:
    """Both train the same model on the same data, with the same cores and threads."""
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        variant = VARIANTS[0] if options.quick else fastest_variant(WORKLOAD, directory)
        with (
            ours(directory / "ours") as our_side,
            peer(WORKLOAD, variant, options.pairs + 1, directory / "peer") as peer_side,
        ):
            speed = WORKLOADS[WORKLOAD].samples_per_second
            pairs = take_turns(our_side, peer_side, options.pairs, speed)
    report("hogwild", pairs, "samples/s", peer_variant="/".join(variant))


def ours(directory: Path) -> Side:
    """`fb.fit`, which pins its workers itself; the server has no core of its own."""
    script = str(HERE / "sides" / "flambeau_async.py")
    return Side(directory, [[sys.executable, script, WORKLOAD, "none"]])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    options = parser.parse_args()
    options.pairs = 2 if options.quick else options.pairs
    return options


if __name__ == "__main__":
    main()
