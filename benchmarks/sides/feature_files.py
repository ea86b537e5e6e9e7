"""Prepare features in a process of its own, by one of several systems.

feature_files.py SIDE CORES INPUT OUT

Prints one line of JSON: rows, seconds, the peak memory of all processes, and what both sides of a
comparison must have in common: the size of each column's vocabulary (missing and rare values not
counted) and, where ids are by frequency, the sum of all ids, which does not depend on the order of
equally frequent values.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

NUMBERS = [f"I{n}" for n in range(1, 14)]
TEXTS = [f"C{n}" for n in range(1, 27)]
MIN_COUNT = 10

#: Vocabulary sizes and sums of ids (None: not comparable), by column.
Checks = tuple[dict[str, int], dict[str, int] | None]


def ours(cores: int, data: str, out: Path) -> Checks:
    """Criteo's logs, from text to shuffled files of features."""
    import flambeau as fb
    import flambeau.features as ft

    pipeline = ft.criteo(min_count=MIN_COUNT)
    found = pipeline.fit_transform(
        f"{data}/day_*", out=out, cluster=fb.Local(cores), observe={"progress": "none"}
    )
    return {name: size - 1 for name, size in pipeline.sizes_.items()}, _sums(found.train)


def polars(cores: int, data: str, out: Path) -> Checks:
    """The same in Polars, lazily and streaming; the text is read once for each pass."""
    return _polars(_criteo_scan(data), out)


def polars_columns(cores: int, data: str, out: Path) -> Checks:
    """The same, but the text becomes Parquet first, which both passes read."""
    import polars as pl

    raw = out.with_name(f"{out.name}-raw.parquet")
    _criteo_scan(data).sink_parquet(raw, engine="streaming")
    return _polars(pl.scan_parquet(raw), out)


def _criteo_scan(data: str) -> Any:
    import polars as pl

    schema: dict[str, Any] = {"label": pl.Float32}
    schema |= dict.fromkeys(NUMBERS, pl.Float32) | dict.fromkeys(TEXTS, pl.String)
    return pl.scan_csv(
        f"{data}/day_*", separator="\t", has_header=False, schema=schema, quote_char=None
    )


def _polars(rows: Any, out: Path) -> Checks:
    import polars as pl

    counts = [
        rows.select(pl.col(name))
        .drop_nulls()
        .group_by(name)
        .len()
        .filter(pl.col("len") >= MIN_COUNT)
        .sort("len", descending=True)
        for name in TEXTS
    ]
    found = pl.collect_all(counts, engine="streaming")
    features = rows
    for name, each in zip(TEXTS, found, strict=True):
        ids = each.select(name, pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(f"{name}_id"))
        features = features.join(ids.lazy(), on=name, how="left", maintain_order="left")
    logs = [pl.col(name).fill_null(0).clip(0).log1p() for name in NUMBERS]
    numbered = [pl.col(f"{name}_id").fill_null(0).alias(name) for name in TEXTS]
    out.mkdir(parents=True)
    features.select("label", *logs, *numbered).sink_parquet(
        out / "train.parquet", engine="streaming", row_group_size=1 << 16
    )
    sizes = {name: len(each) for name, each in zip(TEXTS, found, strict=True)}
    return sizes, _sums(str(out))


def ordinal(cores: int, data: str, out: Path) -> Checks:
    """26 columns of texts as ids, from Parquet to Parquet."""
    import flambeau as fb
    import flambeau.features as ft

    pipeline = ft.Pipeline([ft.Categorify(TEXTS)])
    found = pipeline.fit_transform(
        data, out=out, cluster=fb.Local(cores), observe={"progress": "none"}
    )
    return {name: size - 1 for name, size in pipeline.sizes_.items()}, _sums(found.train)


def ray(cores: int, data: str, out: Path) -> Checks:
    """The same by Ray Data's OrdinalEncoder, whose ids are in the order of values."""
    import ray as engine
    from ray.data.preprocessors import OrdinalEncoder

    engine.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
    rows = engine.data.read_parquet(data)
    encoder = OrdinalEncoder(columns=TEXTS)
    encoder.fit_transform(rows).write_parquet(str(out))
    sizes = {name: len(encoder.stats_[f"unique_values({name})"]) for name in TEXTS}
    engine.shutdown()
    return sizes, None


def spark(cores: int, data: str, out: Path) -> Checks:
    """The same by Spark's StringIndexer, whose ids are by frequency, from 0 on."""
    from pyspark.ml.feature import StringIndexer
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    rows = session.read.parquet(data)
    results = [f"{name}_id" for name in TEXTS]
    model = StringIndexer(inputCols=TEXTS, outputCols=results).fit(rows)
    ids = [functions.col(f"{name}_id").cast("long").alias(name) + 1 for name in TEXTS]
    named = [each.alias(name) for each, name in zip(ids, TEXTS, strict=True)]
    model.transform(rows).select("label", *named).write.parquet(str(out))
    sizes = {name: len(labels) for name, labels in zip(TEXTS, model.labelsArray, strict=True)}
    session.stop()
    return sizes, _sums(str(out))


def _sums(folder: str) -> dict[str, int]:
    import pyarrow.parquet as pq

    sums = dict.fromkeys(TEXTS, 0)
    for path in sorted(Path(folder).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=TEXTS):
            for name in TEXTS:
                sums[name] += int(batch.column(name).to_numpy(zero_copy_only=False).sum())
    return sums


SIDES: dict[str, Callable[[int, str, Path], Checks]] = {
    side.__name__: side for side in (ours, polars, polars_columns, ordinal, ray, spark)
}


class PeakMemory(threading.Thread):
    """Looks several times a second how much memory this process and its children have."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, _memory())

    def stop(self) -> int:
        """Return the largest sum that was seen, in bytes."""
        self._done.set()
        self.join()
        return self.peak


def _memory() -> int:
    """Return the memory of all processes; shared pages count in parts."""
    me, total = psutil.Process(), 0
    for process in (me, *me.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def main(side: str, cores: int, data: str, out: Path) -> None:
    watch = PeakMemory()
    watch.start()
    start = time.perf_counter()
    sizes, sums = SIDES[side](cores, data, out)
    seconds = time.perf_counter() - start
    peak = watch.stop() / 1e6
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "sizes": sizes, "sums": sums}))


if __name__ == "__main__":
    name, number, source, target = sys.argv[1:]
    os.environ.setdefault("POLARS_MAX_THREADS", number)
    main(name, int(number), source, Path(target))
