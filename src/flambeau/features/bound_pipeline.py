"""A fitted pipeline for rows with certain columns: a function of record batches."""

from collections.abc import Iterator, Sequence
from typing import final

import pyarrow as pa

from flambeau.data.source import StreamedSource
from flambeau.errors import DataError, FlambeauError
from flambeau.features.operation import Operation, State, Step, TrainingRows, schema_after


@final
class BoundPipeline:
    """A fitted pipeline for rows with certain columns: a function of record batches."""

    def __init__(
        self,
        operations: Sequence[Operation],
        states: Sequence[State],
        schema: pa.Schema,
        needed: Sequence[str] | None = None,
    ) -> None:
        #: The raw columns that it reads: their schema, and their names.
        self.raw_schema = schema
        self.columns = tuple(schema.names)
        self._steps: list[tuple[Operation, Step, tuple[str, ...]]] = []
        for operation, state in zip(operations, states, strict=True):
            step = operation.bind(schema, state)
            self._steps.append((operation, step, operation.removes(schema)))
            schema = schema_after(operation, schema, state)
        names = schema.names if needed is None else needed
        #: The columns and types of its results.
        self.schema = pa.schema([schema.field(name) for name in names])

    def __call__(self, batch: pa.RecordBatch, rows: TrainingRows | None = None) -> pa.RecordBatch:
        """Return the features of a batch; `rows` says which rows of the training data it holds."""
        arrays = {field.name: _typed(batch.column(field.name), field) for field in self.raw_schema}
        for operation, step, removed in self._steps:
            try:
                written = step(arrays, rows)
            except (pa.ArrowException, FlambeauError, TypeError, ValueError) as error:
                raise DataError(f"{operation}: {error}") from error
            for name in removed:
                arrays.pop(name, None)
            arrays |= written
        columns = [arrays[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def batches(self, source: StreamedSource) -> Iterator[pa.RecordBatch]:
        """Return the features of all rows of a source."""
        for shard in source.shards():
            for batch in source.read(shard, source.schema.names):
                yield self(batch)


def _typed(column: pa.Array, field: pa.Field) -> pa.Array:
    return column if column.type == field.type else column.cast(field.type)


def schemas_along(
    operations: Sequence[Operation], states: Sequence[State], schema: pa.Schema
) -> list[pa.Schema]:
    """Return the columns before each fitted operation, and after the last."""
    found = [schema]
    for operation, state in zip(operations, states, strict=True):
        found.append(schema_after(operation, found[-1], state))
    return found


def sizes_of(
    operations: Sequence[Operation], states: Sequence[State], schema: pa.Schema
) -> dict[str, int]:
    """Return the number of distinct ids of each id column, including 0."""
    found: dict[str, int] = {}
    schemas = schemas_along(operations, states, schema)
    for operation, state, before in zip(operations, states, schemas, strict=False):
        sizes = operation.sizes(before, state)
        changed = operation.writes(before).keys() | set(operation.removes(before))
        found = {name: size for name, size in found.items() if name not in changed} | sizes
    return {name: found[name] for name in schemas[-1].names if name in found}


def needed_operations(
    operations: Sequence[Operation], schemas: Sequence[pa.Schema], needed: Sequence[str]
) -> tuple[list[Operation | None], set[str]]:
    """Return the operations that the needed columns depend on, and the columns these read.

    `schemas` is the result of `schemas_along`. Operations that are not needed are None.
    """
    wanted = set(needed)
    kept: list[Operation | None] = []
    for operation, before in zip(reversed(operations), reversed(schemas[:-1]), strict=True):
        narrowed = operation.narrowed(before, wanted)
        kept.append(narrowed)
        if narrowed is not None:
            wanted = (wanted - narrowed.writes(before).keys()) | set(narrowed.reads(before))
    return kept[::-1], wanted
