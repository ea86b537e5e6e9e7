"""Rows per second of generated click logs as text, against Polars writing a ready frame of them."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
from measure import interleave, report

from flambeau.data.generated import generate_clicks


def main() -> None:
    """We draw, format, score and write; the peer only formats and writes."""
    options = parse_options()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        generate_clicks(folder / "frame", rows=options.rows, format="parquet", days=1)
        frame = pl.read_parquet(folder / "frame" / "day_0.parquet").drop("day", "row")
        frame = frame.with_columns(pl.col("^I.*$").cast(pl.Int32)).rechunk()
        ours, peer = generating(folder, options.rows), writing(folder, frame)
        for measure in (ours, peer):  # kernels are compiled, threads are started
            measure()
        report("generate/tsv", interleave(ours, peer, options.pairs), "rows/s", rows=options.rows)


def generating(folder: Path, rows: int) -> Callable[[], float]:
    """A function that measures our rows per second."""

    def measure() -> float:
        start = time.perf_counter()
        generate_clicks(folder / "ours", rows=rows, days=1, force=True)
        return rows / (time.perf_counter() - start)

    return measure


def writing(folder: Path, frame: pl.DataFrame) -> Callable[[], float]:
    """A function that measures the peer's rows per second."""

    def measure() -> float:
        start = time.perf_counter()
        frame.write_csv(folder / "peer.tsv", separator="\t", include_header=False)
        return frame.height / (time.perf_counter() - start)

    return measure


def parse_options() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--dir", help="Where the files go for the time being.")
    parser.add_argument("--quick", action="store_true", help="Few rows, to see that it runs.")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.pairs = 50_000, 2
    return options


if __name__ == "__main__":
    main()
