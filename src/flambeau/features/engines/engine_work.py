"""The work of engine tasks: making features and gathering statistics."""

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import pyarrow as pa

from flambeau.errors import ConfigError
from flambeau.features.bound_pipeline import BoundPipeline
from flambeau.features.engines.engine_frame import Work
from flambeau.features.fitting import FitStage
from flambeau.features.operation import Operation, State, TrainingRows

#: Pieces of files of partial statistics in transit, with their statistic and file.
PARTIALS = pa.schema(
    [
        ("statistic", pa.int32()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("data", pa.binary()),
    ]
)
#: Bytes of a piece: Spark Connect limits messages to 128 MB.
_PIECE = 16 << 20


@final
@dataclass(frozen=True)
class Typed:
    """Work whose results have certain columns and types."""

    work: Work
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self.work(batches):
            yield as_typed(batch, self.schema)


def as_typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns and types of a schema."""
    columns = [batch.column(field.name) for field in schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _code_is_here() -> Iterator[None]:
    """Add advice to errors about code that the driver can import and an engine task cannot."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            f"{error}. Tasks of the engine need it, too: install it there, or send it (Spark: "
            "spark.addArtifacts or --py-files; Ray: runtime_env)"
        ) from error


@final
@dataclass(frozen=True)
class MakeFeatures:
    """Work that makes features with fitted operations from rows with the columns of `schema`."""

    operations: Sequence[Operation]
    states: Sequence[State]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._bound(batch)

    @cached_property
    def _bound(self) -> BoundPipeline:
        with _code_is_here():
            return BoundPipeline(self.operations, self.states, self.schema)


@final
@dataclass(frozen=True)
class GatherStatistics:
    """Work that gathers the statistics of one pass into files, returned as rows of `PARTIALS`.

    `numbers` are the indices of the operations that the pass fits, `states` the statistics known
    before it, and `memory` is the limit in bytes on statistics in memory.
    """

    operations: Sequence[Operation]
    schema: pa.Schema
    states: Sequence[State | None]
    numbers: Sequence[int]
    memory: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _code_is_here():
            stage = FitStage.of(self.operations, self.schema, self.states, self.numbers)
        typed = (as_typed(batch, self.schema) for batch in batches if batch.num_rows)
        rows = (
            (dict(zip(batch.schema.names, batch.columns, strict=True)), TrainingRows(0, 0))
            for batch in typed
        )
        with tempfile.TemporaryDirectory(prefix="flambeau-fit-") as folder:
            gathered = stage.gather(rows, Path(folder), self.memory)
            for number, gathering in enumerate(gathered):
                gathering.spill()
                for path in gathering.files:
                    yield from _pieces(number, path)


def _pieces(statistic: int, path: Path) -> Iterator[pa.RecordBatch]:
    """Return the content of a file in pieces, under a unique name."""
    name = uuid.uuid4().hex
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            values = [statistic], [name], [file.tell() - len(data)], [data]
            yield pa.record_batch(list(values), schema=PARTIALS)
