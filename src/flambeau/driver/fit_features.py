"""Fitting a pipeline with the processes of a cluster."""

import tempfile
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from flambeau.config import Cluster, Local, Observe
from flambeau.data.source import StreamedSource
from flambeau.driver.parts.prepare import travels
from flambeau.driver.parts.prepare_steps import runner
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import cluster_of
from flambeau.errors import NotSharedError
from flambeau.features.fit_folder import fit_in_folder
from flambeau.features.fitting import memory_bytes
from flambeau.features.operation import Operation, State
from flambeau.features.preparing.out_folder import writing_to
from flambeau.features.preparing.prepared import PART_ROWS
from flambeau.features.raw_data import open_rows
from flambeau.observe import Observer, stage_display


def fit(
    operations: Sequence[Operation],
    data: Any,
    cluster: Cluster,
    memory: int | str | None,
    format: str | None,
    observe: Any,
) -> tuple[tuple[State, ...], pa.Schema]:
    """Return the operations' statistics and the data's columns, found by a cluster's processes."""
    given = {"operations": [operation.dump() for operation in operations]}
    shown = Observe.parse(observe or {})
    drive = partial(_fit, tuple(operations), data, memory_bytes(memory), format, shown)
    return together(cluster_of(cluster), "pipeline.fit", comparable(given), drive)


def _fit(
    operations: tuple[Operation, ...],
    data: Any,
    memory: int,
    format: str | None,
    observe: Observe,
    cluster: Cluster,
) -> tuple[tuple[State, ...], pa.Schema]:
    source = open_rows(data, format)
    # Other machines are more likely to share the current folder than that of temporary files.
    place = None if isinstance(cluster, Local) else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".flambeau-fit-", dir=place) as folder:
        states = fit_files(
            source, operations, Path(folder), cluster, memory, observe, spread=travels(data)
        )
        return tuple(dict(state) for state in states), source.schema


def fit_files(
    source: StreamedSource,
    operations: Sequence[Operation],
    folder: Path,
    cluster: Cluster,
    memory: int,
    observe: Observe,
    *,
    spread: bool = True,
) -> tuple[State, ...]:
    """Return the statistics of operations; earlier work in the folder is reused.

    The processes of the cluster do the work if there are many rows and they can open the data
    (`spread`). If they cannot see the folder, processes of this machine do it.
    """
    observer = stage_display(observe.progress, observe.every_seconds)
    few = sum(shard.rows for shard in source.shards()) <= PART_ROWS
    where = Local() if few else cluster
    fit = partial(_fit_by, source, operations, folder.resolve(), memory, spread, observer)
    try:
        return fit(where)
    except NotSharedError as error:
        warnings.warn(f"the pipeline is fitted on this machine only: {error}", stacklevel=2)
        return fit(Local(cluster.workers))
    finally:
        observer.close()


def _fit_by(
    source: StreamedSource,
    operations: Sequence[Operation],
    folder: Path,
    memory: int,
    spread: bool,
    observer: Observer,
    cluster: Cluster,
) -> tuple[State, ...]:
    run = runner(cluster, observer, travels=spread)
    with writing_to(folder):
        return fit_in_folder(source, operations, folder, memory, run, observer)
