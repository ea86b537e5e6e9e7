"""Tables of one partition, regrouped into tables that share no values and fit into memory."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

from flambeau.features.statistics.partitions import in_partitions
from flambeau.features.statistics.statistic import Workspace

#: A function that merges several tables into one, with each value once.
Merge = Callable[[Sequence[pa.Table]], pa.Table]

#: Tables, the copy that a merge needs, and the result are in memory at once.
_SHARE = 6
#: Limit on repeated division: rows that so many hashes do not separate have very few values.
_DEEPEST = 6


def disjoint_tables(
    tables: Iterable[pa.Table],
    merge: Merge,
    space: Workspace,
    *,
    again: bool = True,
    depth: int = 1,
) -> Iterator[pa.Table]:
    """Return the merged rows of all tables; no value is in two results.

    Tables whose distinct values exceed the memory are divided by other hashes into files, which
    keep their order and are merged one after the other. With `again`, `merge` accepts its own
    results.
    """
    waiting: list[pa.Table] = []
    size, most = 0, space.memory // _SHARE
    rest = iter(tables)
    for table in rest:
        waiting.append(table)
        size += table.nbytes
        if size <= most or depth > _DEEPEST:
            continue
        if again:
            waiting = [merge(waiting)]
            size = waiting[0].nbytes
        if size > most // 2:
            yield from _divided(chain(waiting, rest), merge, space, again, depth)
            return
    yield merge(waiting)


def _divided(
    tables: Iterable[pa.Table], merge: Merge, space: Workspace, again: bool, depth: int
) -> Iterator[pa.Table]:
    folder = Path(tempfile.mkdtemp(prefix="divided-", dir=space.folder))
    try:
        for path in _write(tables, folder, depth):
            parts = _read(path)
            yield from disjoint_tables(parts, merge, space, again=again, depth=depth + 1)
            path.unlink()
    finally:
        shutil.rmtree(folder)


def _write(tables: Iterable[pa.Table], folder: Path, depth: int) -> list[Path]:
    """Write the rows of tables to a file for each partition by another hash."""
    writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
    for table in tables:
        for part, rows in in_partitions(table, depth).items():
            if len(rows):
                if part not in writers:
                    writers[part] = pa.ipc.new_stream(str(folder / f"{part:02}"), rows.schema)
                writers[part].write_table(rows.combine_chunks())
    for writer in writers.values():
        writer.close()
    return [folder / f"{part:02}" for part in sorted(writers)]


def _read(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            yield pa.Table.from_batches([batch])
