"""Work that tasks of an engine do: make features, gather statistics."""

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

#: Files of partial statistics on their way, in pieces: of which statistic, and which file.
PARTIALS = pa.schema(
    [
        ("statistic", pa.int32()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("data", pa.binary()),
    ]
)
#: Bytes of a piece: Spark Connect takes messages of 128 MB.
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
    """Return the columns of a schema, in its types."""
    columns = [batch.column(field.name) for field in schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _code_is_here() -> Iterator[None]:
    """Say what to do about code that this process has found, and a task of the engine does not."""
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
    """Makes features by fitted operations, of rows with the columns of `schema`."""

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
    """Gathers the statistics of one pass into files, and returns these as rows of `PARTIALS`.

    `numbers` are those of the operations that the pass fits, `states` the statistics that are known
    before it, and `memory` is how many bytes it may have in memory.
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
    """Return a file, which gets a name that no other one has."""
    name = uuid.uuid4().hex
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            values = [statistic], [name], [file.tell() - len(data)], [data]
            yield pa.record_batch(list(values), schema=PARTIALS)
