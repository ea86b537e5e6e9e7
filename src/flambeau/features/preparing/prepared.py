"""A prepared folder: files of features for training, validation and test, and their pipeline.

out/prepared.json         digests of its inputs, and the number of rows of each subset
out/preparation.json      cost of its preparation: seconds, rows per second and memory by stage
out/pipeline/             the fitted pipeline
out/statistics.json       statistics of each column
out/report.html           the same as a page, if requested
out/train/*.parquet       features; also valid/ and test/
out/.flambeau-work/       intermediate files, while it is being prepared
out/.flambeau-rows/       rows of a Spark DataFrame or Ray Dataset, until they are prepared
"""

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from flambeau.checkpoint.durable import write_atomically
from flambeau.coordination.plans import whole_shards
from flambeau.data.prepared_files import PREPARED
from flambeau.data.source import StreamedSource
from flambeau.errors import DataError
from flambeau.features import saved
from flambeau.features.bound_pipeline import sizes_of
from flambeau.features.digest import digest_of
from flambeau.features.fitting import passes, tables_of
from flambeau.features.fused_reading import fuse
from flambeau.features.operation import Operation, State
from flambeau.features.preparing.preparation import Preparation
from flambeau.features.preparing.stage_records import summary_of
from flambeau.features.preparing.stage_runner import RECORDS, Runner, run_steps
from flambeau.features.raw_data import TableSource
from flambeau.features.selection import select
from flambeau.features.splits import SUBSETS, Split
from flambeau.features.summaries.report import write_report
from flambeau.features.summaries.statistics_file import (
    STATISTICS,
    merge_summaries,
    read_statistics,
    statistics_of,
    write_statistics,
)
from flambeau.observe import Event, Observer, Observers
from flambeau.observe.stages import StageRecord

PIPELINE = "pipeline"
#: The file with the cost of a preparation.
TAKEN = "preparation.json"
WORK = ".flambeau-work"
#: In the work folder: the identity of the preparation.
IDENTITY = "identity.json"
ROWS = ".flambeau-rows"
#: Rows that become one file, unless shards are larger.
PART_ROWS = 1 << 18


@final
@dataclass(frozen=True)
class Prepared:
    """Features in a folder; pass `train`, `valid` and `test` to `fb.fit`.

    `stages` has the cost of each stage of the preparation, and `sizes` the number of distinct ids
    of each id column, including 0.
    """

    folder: Path
    rows: dict[str, int]
    stages: tuple[StageRecord, ...] = field(default=(), compare=False)
    sizes: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def summary(self) -> dict[str, float | int | None]:
        """The cost of all stages: `seconds`, `rows_per_second` and `peak_bytes`."""
        return summary_of(self.stages, sum(self.rows.values()))

    @property
    def train(self) -> str:
        """The features for training."""
        found = self._subset("train")
        assert found is not None
        return found

    @property
    def valid(self) -> str | None:
        """The features for validation; None if the split has none."""
        return self._subset("valid")

    @property
    def test(self) -> str | None:
        """The features for testing; None if the split has none."""
        return self._subset("test")

    @property
    def statistics(self) -> dict[str, Any]:
        """The statistics of each column, as in `statistics.json`."""
        return read_statistics(self.folder)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a page with a picture of each column, to `report.html` unless a path is given."""
        return write_report(self.folder, path)

    def _subset(self, name: str) -> str | None:
        return str(self.folder / name) if self.rows.get(name) else None


def prepare_folder(
    source: StreamedSource,
    operations: Sequence[Operation],
    split: Split | None,
    out: Path,
    memory: int,
    run: Runner,
    format: str | None = None,
    observer: Observer | None = None,
    data_digest: str | None = None,
) -> Prepared:
    """Fit operations and write the features of all rows to a folder; `run` does the work.

    The work of an earlier call there is reused if it was for the same operations and data. Changed
    data are detected by `data_digest` or, without one, by the files themselves. The observer
    receives the progress.
    """
    observer = observer or Observers([])
    _check(source, operations, split)
    identity = identity_of(source, operations, split, data_digest)
    work = out / WORK
    _begin(out, identity)
    if (out / PREPARED).exists():
        shutil.rmtree(work, ignore_errors=True)  # left by a call that was killed
        return open_prepared(out)
    shards = source.shards()
    reading, done = (source, 0) if split is not None and split.reads else fuse(source, operations)
    job = Preparation(
        reading,
        tuple(whole_shards([shard.rows for shard in shards], PART_ROWS)),
        tuple(operations[done:]),
        split,
        out,
        work,
        memory,
    )
    _announce(observer, job)
    try:
        stages = run_steps(job, job.steps(), run, observer)
    finally:
        _remove_partial(out)
    last = job.steps()[-1]
    counted = [job.result(last, piece) for piece in range(last.pieces)]
    rows = {name: sum(each.get(name, 0) for each in counted) for name in SUBSETS}
    if not rows["train"]:
        raise DataError("there are no rows to train on: look at the data and at split=")
    states: tuple[State, ...] = ({},) * done + job.states()
    _describe(job, operations[:done], rows)
    saved.save(out / PIPELINE, operations, source.schema, states, format)
    prepared = Prepared(out, rows, stages, sizes_of(operations, states, source.schema))
    _write_taken(prepared)
    digest = digest_of(operations, states)
    values = {"identity": identity, "rows": rows, "pipeline": digest}
    write_atomically(out / PREPARED, json.dumps(values, indent=1).encode())
    shutil.rmtree(work)
    _observe(observer, "prepared", {"out": str(out), "rows": rows, **_taken(prepared)})
    return prepared


def _check(source: StreamedSource, operations: Sequence[Operation], split: Split | None) -> None:
    """Raise errors that columns and files reveal, before an earlier preparation is removed."""
    passes(operations, source.schema)
    tables_of(operations, source.schema)
    if split is not None:
        select(split.reads, source.schema.names)
        if not split.statistics(source.schema):
            split.bind(source.shards(), {})


def _describe(job: Preparation, read_with: Sequence[Operation], rows: dict[str, int]) -> None:
    """Write the statistics of each column."""
    summaries = merge_summaries(map(job.summary_file, range(len(job.parts))))
    values = statistics_of(
        job.summary_plan,
        summaries,
        rows,
        split_by=() if job.split is None else job.split.reads,
        read_with=[operation.kind for operation in read_with],
    )
    write_statistics(job.out / STATISTICS, values)


def open_prepared(folder: Path) -> Prepared:
    """Return the features in a completely prepared folder."""
    try:
        values = json.loads((folder / PREPARED).read_bytes())
    except FileNotFoundError:
        raise DataError(f"{folder} holds no prepared features: {PREPARED} is missing") from None
    except ValueError as error:
        raise DataError(f"{folder / PREPARED} is damaged: {error}") from None
    taken = json.loads((folder / TAKEN).read_bytes()) if (folder / TAKEN).exists() else {}
    records = tuple(_record(stage) for stage in taken.get("stages", ()))
    return Prepared(folder, values["rows"], records, taken.get("sizes", {}))


def _remove_partial(out: Path) -> None:
    """Remove incomplete files that killed processes left behind."""
    for name in SUBSETS:
        for path in (out / name).glob(".*"):
            path.unlink()


def _announce(observer: Observer, job: Preparation) -> None:
    rows = sum(part.rows or 0 for part in job.parts)
    resumed = (job.work / RECORDS).exists()
    _observe(observer, "preparation", {"out": str(job.out), "rows": rows, "resumed": resumed})


def _observe(observer: Observer, kind: str, fields: dict[str, Any]) -> None:
    observer.observe(Event(kind, time.time(), fields))


def _taken(prepared: Prepared) -> dict[str, Any]:
    return {**prepared.summary, "sizes": prepared.sizes}


def _write_taken(prepared: Prepared) -> None:
    stages = [stage.dump() for stage in prepared.stages]
    values = {**_taken(prepared), "stages": stages}
    write_atomically(prepared.folder / TAKEN, json.dumps(values, indent=1).encode())


def _record(values: dict[str, Any]) -> StageRecord:
    return StageRecord(
        **{name: value for name, value in values.items() if name != "rows_per_second"}
    )


def _begin(out: Path, identity: dict[str, Any]) -> None:
    """Set up the folder: keep files of this preparation, and remove all others.

    The process may be killed at any point. The next call removes files that belong to no
    preparation.
    """
    asked = out / WORK / IDENTITY
    for path in (out / PREPARED, asked):
        if path.exists():
            found = json.loads(path.read_bytes())["identity"]
            if found == identity:
                return
            _clear(out)
            if found:
                changed = [name for name in identity if found.get(name) != identity[name]]
                text = f"{out} is prepared anew: {' and '.join(changed)} changed"
                warnings.warn(text, stacklevel=2)
            break
    else:
        require_own(out)
        (out / WORK).mkdir(parents=True, exist_ok=True)
    write_atomically(asked, json.dumps({"identity": identity}).encode())


def require_own(out: Path) -> None:
    """Raise an error if a folder has files that no preparation has written."""
    if (out / PREPARED).exists() or (out / WORK / IDENTITY).exists() or not out.exists():
        return
    # A preparation that was killed at its start leaves only these.
    if any(path.name not in (ROWS, WORK) for path in out.iterdir()):
        raise DataError(
            f"{out} has files that are no prepared features; give another folder as out="
        )


def _clear(out: Path) -> None:
    """Remove all but the mark of a folder of preparations, which then belongs to none of them."""
    work = out / WORK
    work.mkdir(exist_ok=True)
    write_atomically(work / IDENTITY, json.dumps({"identity": {}}).encode())
    for name in (PREPARED, TAKEN):
        (out / name).unlink(missing_ok=True)
    for name in (*SUBSETS, PIPELINE):
        shutil.rmtree(out / name, ignore_errors=True)
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != IDENTITY:
            path.unlink()


def identity_of(
    source: StreamedSource,
    operations: Sequence[Operation],
    split: Split | None,
    data_digest: str | None = None,
) -> dict[str, Any]:
    """Return what identifies the features: digests of the data, operations and split."""
    columns = [[field.name, str(field.type)] for field in source.schema]
    return {
        "data": _digest([data_digest or _rows_of(source), columns]),
        "operations": _digest([operation.dump() for operation in operations]),
        "split": None if split is None else _digest(split.dump()),
    }


def _rows_of(source: StreamedSource) -> Any:
    """Return what identifies the rows: files with sizes and times, or a digest of all values."""
    return source.digest() if isinstance(source, TableSource) else _files_of(source)


def _files_of(source: StreamedSource) -> list[Any]:
    shards = [[shard.path, shard.part, shard.rows] for shard in source.shards()]
    files = {shard.path for shard in source.shards()}
    return [shards, [[path, *_size(path)] for path in sorted(files)]]


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]


def _size(path: str) -> tuple[int, ...]:
    """Return the size and time of a local file; an empty tuple for remote files."""
    if not os.path.exists(path):
        return ()
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
