"""Rows per second from Parquet into tensors, against a bare pyarrow scan that makes the same."""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import interleave, report

SCRIPT = Path(__file__).parent / "sides" / "parquet_rows.py"
PEERS = ("iter_batches", "iter_large", "dataset_large")
GROUP_ROWS = 200_000


def main() -> None:
    """Measure in file order and shuffled, on a file and on one of a tenth of its rows."""
    options = parse_options()
    with directory(options.dir) as folder:
        large, small = (write(folder, rows) for rows in (options.rows, options.rows // 10))
        peer = fastest_peer(large)
        for side in ("flambeau", "flambeau_shuffled"):
            pairs = interleave(speed(side, large), speed(peer, large), options.pairs)
            name = side.replace("flambeau", "loader").replace("_", "/")
            report(name, pairs, "rows/s", peer_variant=peer, **memory(side, peer, large, small))


def fastest_peer(path: Path) -> str:
    """The peer's best way, after a first reading of the file for everybody."""
    medians = {peer: statistics.median(speed(peer, path)() for _ in range(3)) for peer in PEERS}
    return max(medians, key=medians.__getitem__)


def speed(side: str, path: Path) -> Callable[[], float]:
    """A function that measures rows per second."""

    def measure() -> float:
        result = read(side, path)
        return float(result["rows"] / result["seconds"])

    return measure


def memory(side: str, peer: str, large: Path, small: Path) -> dict[str, float]:
    """Peak resident memory of both sides, with the file and with a tenth of it."""
    return {
        f"{who}_peak_mb{suffix}": round(read(name, path)["peak_mb"])
        for who, name in (("ours", side), ("peer", peer))
        for suffix, path in (("", large), ("_tenth", small))
    }


def read(side: str, path: Path) -> dict[str, Any]:
    """What a process that reads the whole file says of it."""
    command = [sys.executable, str(SCRIPT), side, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def write(folder: Path, rows: int) -> Path:
    """A file of 13 float, 26 id and one label column; one that is there is used again."""
    path = folder / f"clicks-{rows}.parquet"
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    generator = np.random.default_rng(0)
    with pq.ParquetWriter(unfinished, table(generator, 1).schema) as writer:
        for start in range(0, rows, GROUP_ROWS):
            writer.write_table(table(generator, min(GROUP_ROWS, rows - start)))
    return unfinished.rename(path)


def table(generator: np.random.Generator, rows: int) -> pa.Table:
    """Counts and long-tailed ids, as in click logs."""
    columns: dict[str, Any] = {"label": generator.integers(0, 2, rows).astype(np.float32)}
    for number in range(1, 14):
        columns[f"I{number}"] = np.log1p(generator.integers(0, 1000, rows)).astype(np.float32)
    for number in range(1, 27):
        columns[f"C{number}"] = (generator.pareto(1.0, rows) * 10 * number).astype(np.int64)
    return pa.table(columns)


def directory(given: str | None) -> contextlib.AbstractContextManager[Path]:
    """The folder for the files: a given one, or one that is removed at the end."""
    if given is None:
        return _temporary()
    Path(given).mkdir(parents=True, exist_ok=True)
    return contextlib.nullcontext(Path(given))


@contextlib.contextmanager
def _temporary() -> Any:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--dir", help="keep the files here, and use them again")
    return parser.parse_args()


if __name__ == "__main__":
    main()
