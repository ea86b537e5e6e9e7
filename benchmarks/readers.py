"""Rows per second of the readers of sparse text, against scikit-learn's and Polars' readers."""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import interleave, report

SCRIPT = Path(__file__).parent / "sides" / "text_rows.py"
PEERS = {"libsvm": "sklearn", "criteo": "polars"}
WARM_UP_ROWS = 1000
WRITTEN_AT_ONCE = 20_000
ITEMS, IDS = 40, 1_000_000


def main() -> None:
    """Both readers on generated files, whole files in fresh processes that take turns."""
    options = parse_options()
    with directory(options.dir) as folder:
        for side, peer in PEERS.items():
            small, large = (write(folder, side, rows) for rows in (WARM_UP_ROWS, options.rows))
            ours, theirs = ([name, str(small), str(large)] for name in (side, peer))
            peaks = {"ours_peak_mb": read(ours)["peak_mb"], "peer_peak_mb": read(theirs)["peak_mb"]}
            pairs = interleave(speed(ours), speed(theirs), options.pairs)
            megabytes = large.stat().st_size / 1e6
            report(f"readers/{side}", pairs, "rows/s", peer_variant=peer, mb=megabytes, **peaks)


def speed(arguments: list[str]) -> Callable[[], float]:
    """A function that measures rows per second."""

    def measure() -> float:
        result = read(arguments)
        return float(result["rows"] / result["seconds"])

    return measure


def read(arguments: list[str]) -> dict[str, Any]:
    """What a process that reads the whole file says of it."""
    command = [sys.executable, str(SCRIPT), *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def write(folder: Path, side: str, rows: int) -> Path:
    """A file of generated rows; one that is there is used again."""
    path = folder / f"{side}-{rows}.txt"
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    generator = np.random.default_rng(0)
    lines = libsvm_lines if side == "libsvm" else criteo_lines
    with open(unfinished, "w") as file:
        for start in range(0, rows, WRITTEN_AT_ONCE):
            file.writelines(lines(generator, min(WRITTEN_AT_ONCE, rows - start)))
    return unfinished.rename(path)


def libsvm_lines(generator: np.random.Generator, rows: int) -> Iterator[str]:
    """40 ids of about a million in each row, ascending, half of their values 1."""
    ids = np.sort(generator.integers(1, IDS, (rows, ITEMS)), axis=1) + np.arange(ITEMS)
    values = np.where(generator.random(ids.shape) < 0.5, 1.0, generator.random(ids.shape))
    for label, row, weights in zip(generator.integers(0, 2, rows), ids, values, strict=True):
        pairs = zip(row.tolist(), weights.tolist(), strict=True)
        items = " ".join(f"{number}:{value:.6g}" for number, value in pairs)
        yield f"{label} {items}\n"


def criteo_lines(generator: np.random.Generator, rows: int) -> Iterator[str]:
    """Long-tailed counts and hexadecimal texts, one value in ten missing."""
    counts = (generator.pareto(1.0, (rows, 13)) * 5).astype(np.int64)
    texts = generator.zipf(1.2, (rows, 26)) % (1 << 32)
    missing = generator.random((rows, 39)) < 0.1
    for row in range(rows):
        cells = [str(count) for count in counts[row].tolist()]
        cells += [f"{text:08x}" for text in texts[row].tolist()]
        shown = ("" if gone else cell for cell, gone in zip(cells, missing[row], strict=True))
        yield f"{row % 4 == 0:d}\t" + "\t".join(shown) + "\n"


def directory(given: str | None) -> contextlib.AbstractContextManager[Path]:
    """The folder for the files: a given one, or one that is removed at the end."""
    if given is None:
        return _temporary()
    Path(given).mkdir(parents=True, exist_ok=True)
    return contextlib.nullcontext(Path(given))


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--dir", help="keep the files here, and use them again")
    parser.add_argument("--quick", action="store_true", help="20,000 rows, 2 pairs: only to see")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.pairs = 20_000, 2
    return options


if __name__ == "__main__":
    main()
