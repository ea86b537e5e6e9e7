"""Engine rows staged for a preparation: files that engine tasks write beside the output.

An engine recomputes rows for each pass over them, in another order and perhaps with other values.
Rows in files do not change, so that a preparation can read them several times, assign any part to
any process, and resume. A checksum shows whether the rows of a later call are the same.
"""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from flambeau.checkpoint.durable import write_atomically
from flambeau.config import FileData
from flambeau.data.source import StreamedSource
from flambeau.errors import DataError
from flambeau.features.engines.checksum import checksum
from flambeau.features.engines.engine_frame import EngineFrame
from flambeau.features.engines.engine_work import as_typed
from flambeau.features.engines.partial_statistics import require_no_order
from flambeau.features.operation import Operation
from flambeau.features.preparing.prepared import ROWS, WORK, require_own
from flambeau.features.preparing.subset_file import GROUP_ROWS
from flambeau.features.raw_data import open_rows
from flambeau.features.splits import ByFile, ByRatio, Split

_STAGED = "staged.json"
#: The file that a task has written; the checksum of its rows is an int64 of the same bits.
WRITTEN = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("checksum", pa.int64())])


@final
@dataclass(frozen=True)
class WriteRows:
    """Work that writes the rows of a task to a file in a folder that all machines share."""

    folder: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Path(self.folder)
        if not folder.is_dir():
            raise DataError(
                f"a machine of the engine does not see {folder.parent.parent}: give out= a folder "
                "that all machines share"
            )
        name, rows, sums = f"{uuid.uuid4().hex}.parquet", 0, 0
        with ExitStack() as stack:
            writer: Any = None
            for table in _row_groups(batches, self.schema):
                if writer is None:
                    writer = stack.enter_context(pq.ParquetWriter(folder / name, self.schema))
                writer.write_table(table)
                rows += table.num_rows
                sums += sum(map(checksum, table.to_batches()))
        if rows:
            yield pa.record_batch([[name], [rows], [_signed(sums)]], schema=WRITTEN)


def _row_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Return rows in tables of `GROUP_ROWS` or more, since engines provide small batches."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(as_typed(batch, schema))
            rows += batch.num_rows
        if rows >= GROUP_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _signed(number: int) -> int:
    return int.from_bytes((number % (1 << 64)).to_bytes(8, "little"), "little", signed=True)


@final
@dataclass(frozen=True)
class StagedRows:
    """Rows in files below the folder of a preparation; `digest` identifies them."""

    folder: Path
    files: tuple[str, ...]
    digest: str

    @property
    def source(self) -> StreamedSource:
        """The rows as a source."""
        paths = tuple(str(self.folder / name) for name in self.files)
        return open_rows(FileData(path=paths, format="parquet"))

    def remove(self) -> None:
        """Remove the files once they are prepared."""
        shutil.rmtree(self.folder.parent)


def stage_rows(
    frame: EngineFrame, operations: tuple[Operation, ...], split: Split | None, out: Path
) -> StagedRows:
    """Write an engine's rows below `out`; keep those of an interrupted call if they are equal."""
    require_no_order(operations, frame)
    _require_no_rows(split, frame)
    require_own(out)
    base = out / ROWS
    before = _staged_before(base)
    folder = base / uuid.uuid4().hex
    folder.mkdir(parents=True)
    found = _write(frame, folder)
    if before is not None and before.digest == found.digest:
        if all((before.folder / name).is_file() for name in before.files):
            shutil.rmtree(folder)
            return before
        # The work done so far refers to files that are gone.
        shutil.rmtree(out / WORK, ignore_errors=True)
    values = {"folder": folder.name, "files": found.files, "digest": found.digest}
    write_atomically(base / _STAGED, json.dumps(values).encode())
    _remove_others(base, folder)
    return found


def _require_no_rows(split: Split | None, frame: EngineFrame) -> None:
    """Reject splits by the position or file of rows: engine rows have neither."""
    if isinstance(split, ByRatio):
        raise DataError(
            f"split by_ratio: the rows of {frame.name} have no order, so that each call would "
            "split them in another way. Use ft.by_hash with a column that tells rows apart, or "
            f"ft.by_time; or write the rows to files first ({frame.writes})"
        )
    if isinstance(split, ByFile):
        raise DataError(
            f"split by_file: {frame.name} has no files. Use ft.by_hash or ft.by_time, or give the "
            "paths of the files themselves"
        )


def _write(frame: EngineFrame, folder: Path) -> StagedRows:
    """Write all rows; only files that tasks report count, since tasks may be repeated."""
    written = list(frame.run(WriteRows(str(folder), frame.schema), WRITTEN, "file", 1))
    if not written:
        shutil.rmtree(folder)
        raise DataError(f"{frame.name} has no rows")
    written.sort(key=lambda each: (each["checksum"], each["rows"], each["file"]))
    missing = [each["file"] for each in written if not (folder / each["file"]).is_file()]
    if missing:
        raise DataError(
            f"machines of the engine have written {folder}, which is not the folder of this name "
            "here: give out= a folder that all machines share"
        )
    rows = sum(each["rows"] for each in written)
    sums = _signed(sum(each["checksum"] for each in written))
    return StagedRows(folder, tuple(each["file"] for each in written), f"{rows}-{sums}")


def _staged_before(base: Path) -> StagedRows | None:
    """Return the rows that an earlier call staged and did not finish preparing, if any."""
    file = base / _STAGED
    if not file.exists():
        return None
    values = json.loads(file.read_bytes())
    return StagedRows(base / values["folder"], tuple(values["files"]), values["digest"])


def _remove_others(base: Path, kept: Path) -> None:
    for path in base.iterdir():
        if path.is_dir() and path != kept:
            shutil.rmtree(path)
