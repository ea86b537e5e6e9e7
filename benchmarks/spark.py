"""Training and predicting on Spark against SparkTorch, and against ourselves without Spark."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from measure import Pairs, interleave, report, tell
from spark_workload import BATCH_ROWS, WORKERS, repeat, write
from turns import HERE, python_path

MODES = ("synchronous", "hogwild")
#: Iterations of a fit that is all start-up.
FEW = 2
#: If SparkTorch does not run: what it did on another day, with 20,000 rows of Fashion-MNIST.
FIGURES = {"synchronous": 7500.0, "hogwild": 5400.0, "transform": 2400.0}
FIGURES_ARE = "SparkTorch 0.2.0 as measured once elsewhere, not run here"
SPARKTORCH = "SparkTorch 0.2.0"
#: dill cannot pickle what torch has nowadays. torch itself, if it finds dill, calls `extend`.
DILL = """\
from cloudpickle import dumps, loads

def extend(use_dill=True):
    pass
"""
SPARK_MEMORY, SPARK_MEMORY_MB = "512m", 512

#: A speed, and what else is known of that measurement.
Measured = tuple[float, dict[str, float]]
Measure = Callable[[], Measured]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rows: int
    iterations: int
    few_iterations: int
    transform_times: int
    memory_times: int
    pairs: int


FULL = Sizes(
    rows=20_000,
    iterations=2000,
    few_iterations=200,
    transform_times=100,
    memory_times=9,
    pairs=3,
)
QUICK = Sizes(
    rows=4000, iterations=40, few_iterations=10, transform_times=3, memory_times=1, pairs=2
)


class Bench:
    """The sides, each a fresh process for each measurement, and their data."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder, self.sizes = folder, sizes
        self.arrays = write(folder / "arrays", sizes.rows)

    @cached_property
    def vectors(self) -> Path:
        """The same rows with Spark's vectors, which SparkTorch needs."""
        found = self.folder / "vectors"
        self.ask("spark_torch.py", "ours", "vectors", self.arrays, found)
        return found

    @cached_property
    def peer(self) -> Path | None:
        """A folder with SparkTorch; None if it does not run here."""
        folder = self.folder / "sparktorch"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        try:
            for packages in (["flask", "requests"], ["--no-deps", "sparktorch==0.2.0"]):
                subprocess.run([*pip, *packages], check=True, stdout=sys.stderr)
            (folder / "dill.py").write_text(DILL)
            script = ("spark_torch.py", "peer", "fit", self.vectors, MODES[0], FEW)
            self.ask(*script, first=folder)
        except subprocess.CalledProcessError as error:
            print(f"SparkTorch does not run: {error}", file=sys.stderr)
            return None
        return folder

    def ask(self, script: str, *arguments: object, first: Path | None = None) -> dict[str, Any]:
        """What a side measured; it looks for modules in `first` before all others."""
        path = [str(first)] if first else []
        done = subprocess.run(
            [sys.executable, str(HERE / "sides" / script), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, python_path()])},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    def sparktorch(self, side: str, *arguments: object) -> dict[str, Any]:
        """What `ours` or `peer` measured."""
        first = self.peer if side == "peer" else None
        return self.ask("spark_torch.py", side, *arguments, first=first)


def against_sparktorch(
    bench: Bench, name: str, ours: Measure, peer: Measure, figure: float
) -> None:
    """Report pairs of speeds, and the medians of what else is known; `figure`: if no peer runs."""
    more: dict[str, dict[str, list[float]]] = {"ours": {}, "peer": {}}

    def speed(side: str, measure: Measure) -> float:
        value, further = measure()
        for key, each in further.items():
            more[side].setdefault(key, []).append(each)
        return value

    if bench.peer is None:
        found = [speed("ours", ours) for _ in range(bench.sizes.pairs)]
        pairs, variant = Pairs(found, [figure] * len(found)), FIGURES_ARE
    else:
        count = bench.sizes.pairs
        pairs = interleave(partial(speed, "ours", ours), partial(speed, "peer", peer), count)
        variant = SPARKTORCH
    medians = {
        f"{side}_{key}": statistics.median(values)
        for side, keys in more.items()
        for key, values in keys.items()
    }
    unit = "rows/s" if name == "transform" else "samples/s"
    report(f"spark/{name}", pairs, unit, peer_variant=variant, **medians)


def fit(bench: Bench) -> None:
    """Speed of many iterations in a warm session, start-up apart."""
    iterations = bench.sizes.iterations

    def measure(mode: str, side: str) -> Measured:
        found = bench.sparktorch(side, "fit", bench.vectors, mode, FEW, FEW, iterations)
        first, startup, whole = found["seconds"]
        speed = (iterations - FEW) * BATCH_ROWS * WORKERS / (whole - startup)
        further = {"startup": startup, "first_startup": first, "accuracy": found["accuracy"]}
        return speed, further

    for mode in MODES:
        sides = [partial(measure, mode, side) for side in ("ours", "peer")]
        against_sparktorch(bench, f"fit/{mode}", *sides, FIGURES[mode])


def short(bench: Bench) -> None:
    """Speed of fits of few iterations, with all that they start: a session's first, and the next.

    Both are measured with one call, since a session takes its time.
    """
    iterations = bench.sizes.few_iterations
    rows = iterations * BATCH_ROWS * WORKERS

    for mode in MODES:
        later: dict[str, list[float]] = {"ours": [], "peer": []}

        def first(side: str, mode: str, later: dict[str, list[float]]) -> Measured:
            found = bench.sparktorch(side, "fit", bench.vectors, mode, iterations, iterations)
            later[side].append(rows / found["seconds"][1])
            return rows / found["seconds"][0], {"accuracy": found["accuracy"]}

        def again(side: str, later: dict[str, list[float]]) -> Measured:
            return later[side].pop(0), {}

        sides = [partial(first, side, mode, later) for side in ("ours", "peer")]
        against_sparktorch(bench, f"short/{mode}/first", *sides, FIGURES[mode])
        sides = [partial(again, side, later) for side in ("ours", "peer")]
        against_sparktorch(bench, f"short/{mode}/next", *sides, FIGURES[mode])


def transform(bench: Bench) -> None:
    """Speed of predicting many rows; SparkTorch, which takes row by row, is given fewer."""
    many = repeat(bench.vectors, bench.folder / "many", bench.sizes.transform_times)

    def measure(side: str, data: Path) -> Measured:
        found = bench.sparktorch(side, "transform", bench.vectors, data)
        return found["rows"][1] / found["seconds"][1], {"rows": found["rows"][1]}

    sides = partial(measure, "ours", many), partial(measure, "peer", bench.vectors)
    against_sparktorch(bench, "transform", *sides, FIGURES["transform"])

    def nothing() -> float:
        found = bench.sparktorch("ours", "nothing", bench.vectors, many)
        return float(found["rows"][1] / found["seconds"][1])

    pairs = interleave(lambda: measure("ours", many)[0], nothing, bench.sizes.pairs)
    report("spark/transform/limit", pairs, "rows/s", peer_variant="a function that does nothing")


def overhead(bench: Bench) -> None:
    """Seconds of the same `fb.fit`, with all that it starts, but without the session's start."""
    sessions: list[float] = []

    def measure(kind: str) -> float:
        given = (bench.arrays, bench.sizes.rows, bench.sizes.iterations)
        found = bench.ask("spark_cluster.py", "seconds", kind, *given)
        sessions.extend([found["session_seconds"]] if kind == "spark" else [])
        return float(found["seconds"])

    pairs = interleave(lambda: measure("spark"), lambda: measure("local"), bench.sizes.pairs)
    both = list(zip(pairs.ours, pairs.peer, strict=True))
    report(
        "spark/overhead",
        pairs,
        "s",
        higher_is_better=False,
        peer_variant="fb.Local(2)",
        seconds_more=statistics.median(ours - local for ours, local in both),
        seconds_allowed=5 + 0.1 * statistics.median(pairs.peer),
        session_seconds=statistics.median(sessions),
    )


def memory(bench: Bench) -> None:
    """Peak memory with a DataFrame of about the executor's memory, and with one ten times that."""
    times = bench.sizes.memory_times
    found = {}
    for name, count in (("small", times), ("large", 10 * times)):
        data = repeat(bench.arrays, bench.folder / name, count)
        found[name] = bench.ask("spark_cluster.py", "memory", data, SPARK_MEMORY)
        tell(f"spark/memory/{name}", unit="MB", spark_memory_mb=SPARK_MEMORY_MB, **found[name])
    ratios = {
        f"{each}_ratio": found["large"][f"{each}_mb"] / found["small"][f"{each}_mb"]
        for each in ("worker", "worker_anonymous", "agent")
    }
    tell("spark/memory", **ratios)


PARTS = {
    "fit": fit,
    "short": short,
    "transform": transform,
    "overhead": overhead,
    "memory": memory,
}


def main() -> None:
    options = parse_options()
    sizes = QUICK if options.quick else replace(FULL, pairs=options.pairs)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        os.environ |= {
            "GLOO_SOCKET_IFNAME": "lo",
            "MKL_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": name,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": name,
        }
        bench = Bench(Path(name), sizes)
        for part in PARTS if options.parts == "all" else options.parts:
            PARTS[part](bench)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--pairs", type=int, default=FULL.pairs)
    parser.add_argument("--quick", action="store_true", help="to see that it runs, no more")
    return parser.parse_args()


if __name__ == "__main__":
    main()
