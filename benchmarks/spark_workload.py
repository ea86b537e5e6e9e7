"""What all sides of the Spark benchmark share: rows with classes, a session, how to time."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = 2
BATCH_ROWS = 256
FEATURES, CLASSES = 784, 10
TRAINING, HELD_OUT = 1, 2  # seeds
_CENTRES, _HIDDEN, _SPREAD = 40, 12, 0.75


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`[count, 784]` numbers of 256 levels from 0 to 1, as of small images, and their classes.

    Each class has four centres in a space of 12 dimensions, and overlaps with others: a network
    of this size gets about nine of ten right.
    """
    shape, chance = np.random.default_rng(0), np.random.default_rng(seed)
    centres = shape.normal(size=(_CENTRES, _HIDDEN))
    projection = shape.normal(size=(_HIDDEN, FEATURES)) / np.sqrt(_HIDDEN)
    chosen = chance.integers(_CENTRES, size=count)
    hidden = centres[chosen] + _SPREAD * chance.normal(size=(count, _HIDDEN))
    x = 1 / (1 + np.exp(-hidden @ projection - 0.3 * chance.normal(size=(count, FEATURES))))
    return (np.round(x * 255) / 255).astype(np.float32), chosen % CLASSES


def write(folder: Path, count: int) -> Path:
    """A folder with two files of rows to train on, one for each worker."""
    folder.mkdir()
    x, y = draw(count, TRAINING)
    for part in range(WORKERS):
        values = pa.array(x[part::WORKERS].ravel())
        features = pa.FixedSizeListArray.from_arrays(values, FEATURES)
        table = pa.table({"features": features, "label": pa.array(y[part::WORKERS])})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=2048)
    return folder


def repeat(source: Path, folder: Path, times: int) -> Path:
    """A folder with the files of another so many times, which takes no room on the disk."""
    folder.mkdir()
    for file in source.glob("*.parquet"):
        for number in range(times):
            os.link(file, folder / f"{number}-{file.name}")
    return folder


def session(memory: str = "2g") -> "SparkSession":
    """A session with two slots; its one executor, which is the driver, has so much memory."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{WORKERS}]")
    settings = {
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": WORKERS,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How long it took, and what it gave."""
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def answer(**values: Any) -> None:
    """Tell the benchmark what was measured: the last line of what a side prints."""
    print(json.dumps(values), flush=True)
