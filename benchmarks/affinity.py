"""Samples per second of two workers bound to cores of their own, against two that are not.

Those that are not have as many threads each as the machine has cores, as torch does by itself.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from measure import report
from turns import HERE, Side, take_turns
from workloads import WORKLOADS


def main() -> None:
    """Measure each workload."""
    options = parse_options()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.pop(name, None)
    for name in WORKLOADS if options.workloads == "all" else options.workloads:
        with tempfile.TemporaryDirectory() as directory:
            folder, blocks = Path(directory), options.pairs + 1
            with (
                side(name, "auto", blocks, folder / "bound") as bound,
                side(name, "none", blocks, folder / "unbound") as unbound,
            ):
                speed = WORKLOADS[name].samples_per_second
                pairs = take_turns(bound, unbound, options.pairs, speed)
            report(f"affinity/{name}", pairs, "samples/s")


def side(name: str, affinity: str, blocks: int, directory: Path) -> Side:
    """Return a training by two workers with this setting of `affinity`."""
    script = str(HERE / "sides" / "flambeau_fit.py")
    return Side(directory, [[sys.executable, script, name, str(blocks), affinity]])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default="all", choices=[*WORKLOADS, "all"])
    parser.add_argument("--pairs", type=int, default=12)
    return parser.parse_args()


if __name__ == "__main__":
    main()
