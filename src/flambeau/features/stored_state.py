"""Statistics in Parquet files, which are read piece by piece: vocabularies may be large."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from flambeau.errors import DataError

#: Rows of a piece of a table: a row group of its file.
PIECE_ROWS = 1 << 16


@final
class StoredState(Mapping[str, pa.Table]):
    """Tables by name, in files or in memory: a table in a file is read when it is accessed.

    If files have other columns, too, only `columns` are part of the table.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        tables: Mapping[str, pa.Table] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._files, self._tables = dict(files), dict(tables or {})
        self._columns = None if columns is None else list(columns)

    def __getitem__(self, name: str) -> pa.Table:
        if name in self._tables:
            return self._tables[name]
        path = self._files[name]
        try:
            return pq.read_table(path, columns=self._columns)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from None

    def __iter__(self) -> Iterator[str]:
        return iter({**self._tables, **self._files})

    def __len__(self) -> int:
        return len({**self._tables, **self._files})

    def __reduce__(self) -> tuple[Any, ...]:
        # Other machines may not have the files.
        return dict, (dict(self),)

    @property
    def file_bytes(self) -> int:
        """The size of all files in bytes."""
        try:
            return sum(path.stat().st_size for path in self._files.values())
        except OSError as error:
            raise DataError(f"a file of the pipeline cannot be read: {error}") from None

    def file(self, name: str) -> pq.ParquetFile | None:
        """Return the open file of a table; None for those in memory."""
        if name in self._tables:
            return None
        try:
            return pq.ParquetFile(self._files[name], pre_buffer=False)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self._files[name], error) from None

    def columns_of(self, file: pq.ParquetFile) -> list[str]:
        """Return the columns of a file that are part of its table."""
        return list(file.schema_arrow.names) if self._columns is None else self._columns

    def copy(self, name: str, target: Path, columns: Sequence[str] | None = None) -> bool:
        """Copy the file of a table; return False if it has none, or has other columns."""
        if name in self._tables or self._columns != (None if columns is None else list(columns)):
            return False
        shutil.copyfile(self._files[name], target)
        return True


def rows_of(state: Mapping[str, pa.Table], name: str) -> int:
    """Return the number of rows of a table, without reading it."""
    file = state.file(name) if isinstance(state, StoredState) else None
    if file is None:
        return len(state[name])
    with file:
        return int(file.metadata.num_rows)


def schema_of(state: Mapping[str, pa.Table], name: str) -> pa.Schema:
    """Return the columns of a table, without reading it."""
    file = state.file(name) if isinstance(state, StoredState) else None
    if file is None:
        return state[name].schema
    assert isinstance(state, StoredState)
    with file:
        return pa.schema([file.schema_arrow.field(each) for each in state.columns_of(file)])


def batches_of(
    state: Mapping[str, pa.Table], name: str, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table in order, with some columns or all, in small batches."""
    file = state.file(name) if isinstance(state, StoredState) else None
    if file is None:
        table = state[name]
        chosen = table if columns is None else table.select(list(columns))
        yield from chosen.to_batches(max_chunksize=PIECE_ROWS)
        return
    assert isinstance(state, StoredState)
    with file:
        names = state.columns_of(file) if columns is None else list(columns)
        yield from file.iter_batches(PIECE_ROWS, columns=names)


def write_pieces(
    pieces: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, path: Path
) -> None:
    """Write a table to a file; its division into pieces makes no difference."""
    waiting: list[pa.Table] = []
    with pq.ParquetWriter(path, schema) as writer:
        for piece in pieces:
            table = piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece])
            waiting.append(table.cast(schema))
            rows = sum(map(len, waiting))
            if rows >= PIECE_ROWS:
                table = pa.concat_tables(waiting)
                whole = rows // PIECE_ROWS * PIECE_ROWS
                writer.write_table(table.slice(0, whole), row_group_size=PIECE_ROWS)
                waiting = [table.slice(whole)]
        if any(map(len, waiting)):
            writer.write_table(pa.concat_tables(waiting))


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} of the pipeline cannot be read: {error}")
