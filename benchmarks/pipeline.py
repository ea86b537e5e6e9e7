"""Features from raw files: against Polars, Ray Data and Spark, and against themselves."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from measure import interleave, report, tell

from flambeau.data.generated import generate_clicks

SCRIPT = Path(__file__).parent / "sides" / "feature_files.py"
TRAIN = Path(__file__).parent / "sides" / "feature_training.py"
PEERS = ("polars", "polars_columns")


@dataclass(frozen=True)
class Sizes:
    """Rows of the logs, cores of both sides, and pairs."""

    rows: int = 5_000_000
    ordinal_rows: int = 1_000_000
    ids: int = 2_000_000
    cores: int = 2
    pairs: int = 5


QUICK = Sizes(rows=40_000, ordinal_rows=20_000, ids=20_000, pairs=2)


@dataclass(frozen=True)
class Bench:
    """A folder for files, and sizes."""

    folder: Path
    sizes: Sizes

    def logs(self, rows: int) -> Path:
        """Return a folder of generated logs as text; it is written once."""
        folder = self.folder / f"logs-{rows}"
        if not folder.exists():
            generate_clicks(folder, rows=rows, ids=self.sizes.ids, days=4)
        return folder

    def texts(self, rows: int) -> Path:
        """Return the same logs as Parquet, with texts that are never missing."""
        folder = self.folder / f"texts-{rows}"
        if not folder.exists():
            folder.mkdir()
            names = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
            for day in sorted(self.logs(rows).glob("day_*")):
                schema: dict[str, Any] = dict.fromkeys(names, pl.String) | {"label": pl.Float32}
                frame = pl.read_csv(
                    day, separator="\t", has_header=False, schema=schema, quote_char=None
                )
                chosen = frame.select("label", pl.col("^C.*$").fill_null(""))
                chosen.write_parquet(folder / f"{day.stem}.parquet", row_group_size=1 << 16)
        return folder

    def run(self, side: str, data: Path) -> dict[str, Any]:
        """Return what a process reports that prepares features into a new folder."""
        out = Path(tempfile.mkdtemp(dir=self.folder)) / "out"
        arguments = [sys.executable, str(SCRIPT), side, str(self.sizes.cores), str(data), str(out)]
        try:
            done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            shutil.rmtree(out.parent)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def speed(self, side: str, data: Path, rows: int) -> Callable[[], float]:
        """Return a function that measures rows per second."""
        return lambda: rows / float(self.run(side, data)["seconds"])


def require_equal(ours: dict[str, Any], peer: dict[str, Any]) -> None:
    """Stop unless both sides have the same vocabularies and, if known, ids of the same sum."""
    for key in ("sizes", "sums"):
        if ours[key] and peer[key] and ours[key] != peer[key]:
            other = {name for name in ours[key] if ours[key][name] != peer[key].get(name)}
            raise SystemExit(f"the sides have different {key} of {', '.join(sorted(other))}")


def prepare(bench: Bench) -> None:
    """Criteo's logs: 13 logarithms and 26 vocabularies, from text to Parquet, start-up included."""
    rows = bench.sizes.rows
    logs = bench.logs(rows)
    mine = bench.run("ours", logs)
    trials = {side: bench.run(side, logs) for side in PEERS}
    for found in trials.values():
        require_equal(mine, found)
    best = min(trials, key=lambda side: float(trials[side]["seconds"]))
    pairs = interleave(
        bench.speed("ours", logs, rows), bench.speed(best, logs, rows), bench.sizes.pairs
    )
    peaks = {"ours_peak_mb": mine["peak_mb"], "peer_peak_mb": trials[best]["peak_mb"]}
    report("pipeline/prepare", pairs, "rows/s", peer_variant=best, rows=rows, **peaks)


def memory(bench: Bench) -> None:
    """The peak of all processes, with a tenth of the rows and with all."""
    rows = bench.sizes.rows
    small, large = (bench.run("ours", bench.logs(each))["peak_mb"] for each in (rows // 10, rows))
    tell("pipeline/memory", small_mb=small, large_mb=large, ratio=large / small, rows=rows)


def ordinal(bench: Bench) -> None:
    """26 columns of texts as ids, against encoders of Ray Data and Spark, start-up included."""
    rows = bench.sizes.ordinal_rows
    texts = bench.texts(rows)
    mine = bench.run("ordinal", texts)
    for peer in ("ray", "spark"):
        require_equal(mine, bench.run(peer, texts))
        pairs = interleave(
            bench.speed("ordinal", texts, rows), bench.speed(peer, texts, rows), bench.sizes.pairs
        )
        report(f"pipeline/ordinal_{peer}", pairs, "rows/s", rows=rows)


def train(bench: Bench) -> None:
    """Training steps on raw logs with `features=`, against files that were prepared before."""
    logs, cores = bench.logs(bench.sizes.rows), bench.sizes.cores
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        measured: list[dict[str, Any]] = []

        def measure(kind: str) -> float:
            command = [sys.executable, str(TRAIN), kind, str(cores), str(logs), name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
            return float(measured[-1]["rows_per_second"])

        measure("prepared")  # prepares the files, too
        pairs = interleave(partial(measure, "raw"), partial(measure, "prepared"), bench.sizes.pairs)
        rows = {each["rows"] for each in measured}
        if len(rows) != 1:
            raise SystemExit(f"the sides have trained on {rows} rows")
        report("pipeline/train", pairs, "samples/s", rows=rows.pop())


PARTS: dict[str, Callable[[Bench], None]] = {
    "prepare": prepare,
    "memory": memory,
    "ordinal": ordinal,
    "train": train,
}


def main() -> None:
    options = parse_options()
    sizes = QUICK if options.quick else replace(Sizes(), rows=options.rows, pairs=options.pairs)
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "POLARS_MAX_THREADS": str(sizes.cores),
    }
    with _folder(options.dir) as folder:
        for part in PARTS if options.parts == "all" else options.parts:
            PARTS[part](Bench(folder, sizes))


def _folder(given: str | None) -> contextlib.AbstractContextManager[Path]:
    """The folder for the files: a given one, or one that is removed at the end."""
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        return contextlib.nullcontext(Path(given))
    return _temporary()


@contextlib.contextmanager
def _temporary() -> Any:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--rows", type=int, default=Sizes.rows)
    parser.add_argument("--pairs", type=int, default=Sizes.pairs)
    parser.add_argument("--dir", help="keep the generated logs here, and use them again")
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    return parser.parse_args()


if __name__ == "__main__":
    main()
