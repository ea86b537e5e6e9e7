"""Preparing features on a cluster: files of features, and the pipeline that is fitted for them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flambeau.clusters.control_groups import count_cores
from flambeau.config import Cluster, FileData, Local, Observe
from flambeau.data.data_kinds import is_paths
from flambeau.driver.parts.prepare_steps import runner
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import cluster_of
from flambeau.features.engines.engine_frame import engine_frame, is_engine_frame
from flambeau.features.engines.staged_rows import stage_rows
from flambeau.features.fitting import memory_bytes
from flambeau.features.operation import Operation
from flambeau.features.preparing.out_folder import writing_to
from flambeau.features.preparing.prepared import Prepared, prepare_folder
from flambeau.features.raw_data import open_rows
from flambeau.features.splits import Split
from flambeau.observe import stage_display


def prepare(
    operations: Sequence[Operation],
    data: Any,
    split: Split | None,
    out: str | Path,
    cluster: Cluster | None = None,
    memory: int | str | None = None,
    *,
    format: str | None = None,
    observe: Observe | Mapping[str, Any] | None = None,
) -> Prepared:
    """Fit operations on the training rows, and write the features of all rows to a folder.

    The processes of `cluster` do the work, by default one per core of this machine. The same call
    resumes an interrupted preparation.
    """
    where, limit = cluster_of(cluster), memory_bytes(memory)
    folder = Path(out)
    if cluster is None and isinstance(where, Local):
        where = Local(count_cores())
    given = {
        "operations": [operation.dump() for operation in operations],
        "split": None if split is None else split.dump(),
        "out": str(out),
    }
    shown = Observe.parse(observe or {})
    drive = partial(_prepare, tuple(operations), data, format, split, folder, limit, shown)
    try:
        return together(where, "prepare", comparable(given), drive, [folder])
    except KeyboardInterrupt as error:
        if hasattr(error, "told_by_rank_0"):
            raise
        text = f"Stopped. Run the same call again to resume the preparation in {folder}."
        raise KeyboardInterrupt(text) from None


def travels(data: Any) -> bool:
    """Return whether another process can open the data."""
    return is_paths(data) or isinstance(data, FileData)


def _prepare(
    operations: tuple[Operation, ...],
    data: Any,
    format: str | None,
    split: Split | None,
    out: Path,
    memory: int,
    observe: Observe,
    cluster: Cluster,
) -> Prepared:
    staged = None
    if is_engine_frame(data):
        staged = stage_rows(engine_frame(data), operations, split, out.resolve())
    source = open_rows(data, format) if staged is None else staged.source
    observer = stage_display(observe.progress, observe.every_seconds)
    run = runner(cluster, observer, travels=staged is not None or travels(data))
    try:
        with writing_to(out):
            prepared = prepare_folder(
                source,
                operations,
                split,
                out.resolve(),
                memory,
                run,
                format,
                observer,
                None if staged is None else staged.digest,
            )
            if staged is not None:
                staged.remove()
            return prepared
    finally:
        observer.close()
