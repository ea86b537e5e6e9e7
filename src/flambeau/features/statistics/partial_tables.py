"""Partial statistics in files: each holds the tables of all partitions, one record batch each."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import final

import pyarrow as pa

_PARTITIONS = b"partitions"


def write_partitions(path: Path, tables: Mapping[int, pa.Table]) -> None:
    """Write tables by partition to a file, atomically."""
    parts = [part for part, table in tables.items() if len(table)]
    schema = next(iter(tables.values())).schema
    schema = schema.with_metadata({_PARTITIONS: json.dumps(parts)})
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for part in parts:
            (batch,) = tables[part].combine_chunks().to_batches()
            writer.write_batch(batch.cast(schema))
    partial.replace(path)


@final
class PartialTables:
    """The tables in files, in the order of shards; each table is read when it is needed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)

    @cached_property
    def _places(self) -> dict[int, list[tuple[Path, int]]]:
        """The files that have rows of each partition, and the numbers of their batches."""
        found: dict[int, list[tuple[Path, int]]] = {}
        for path in self._paths:
            metadata = _schema_of(path).metadata
            for number, part in enumerate(json.loads(metadata[_PARTITIONS])):
                found.setdefault(part, []).append((path, number))
        return found

    @property
    def schema(self) -> pa.Schema:
        """The columns of all tables."""
        return _schema_of(self._paths[0]).remove_metadata()

    @property
    def partitions(self) -> list[int]:
        """The partitions in order; at least one, which may be empty."""
        return sorted(self._places) or [0]

    def tables(self, partition: int) -> Iterator[pa.Table]:
        """Return the tables of a partition; at least one, which may be empty."""
        if not self._places:
            yield self.schema.empty_table()
        for path, number in self._places.get(partition, []):
            # Not memory-mapped: pages of the file would count as memory of this process.
            with pa.OSFile(str(path)) as file:
                batch = pa.ipc.open_file(file).get_batch(number)
            yield pa.Table.from_batches([batch]).replace_schema_metadata(None)


def _schema_of(path: Path) -> pa.Schema:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).schema
