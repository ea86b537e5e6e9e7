"""Predictions in Spark's Python workers: Arrow in, Arrow out; each process loads the model once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
import torch
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import UserDefinedType
from torch import nn

from flambeau.clusters.spark.cluster import use_own_python
from flambeau.config import Binding
from flambeau.data.binding import Binder, Shape
from flambeau.errors import DataError
from flambeau.inference.given_rows import as_records, kind_of
from flambeau.inference.shorthands import expand
from flambeau.runs.dry_run import runner
from flambeau.runs.number_inputs import suited
from flambeau.runs.open_data import dtype_of
from flambeau.spark.folder import load_module
from flambeau.spark.outputs import Output, spark_columns
from flambeau.spark.shipping import Shipped

SCORED = "_flambeau_scored"
_ROWS = "_flambeau_rows"
#: Models that are loaded in this process, the most recently used last.
_loaded: dict[str, Any] = {}
_MOST_LOADED = 4
#: Number of rows at a time, small enough for a processor's cache.
_SLICE = 1024


@final
class Scoring:
    """Input of workers that apply a model: its files, the binding of columns, and its outputs."""

    def __init__(self, shipped: Shipped, meeting: "Meeting", outputs: tuple[Output, ...]) -> None:
        self._shipped, self._meeting, self._outputs = shipped, meeting, outputs

    @property
    def spark_type(self) -> str:
        """Spark type of the column that `score` returns."""
        return f"struct<{','.join(f'`{each.key}`:{each.spark_type}' for each in self._outputs)}>"

    def score(self, rows: pa.StructArray) -> pa.StructArray:
        """Return the outputs for each row."""
        if not len(rows):
            columns = [pa.array([], each.arrow_type) for each in self._outputs]
        else:
            found = score_rows(self._module(), self._meeting, rows)
            named = {each.key: column for each, column in found.items()}
            columns = [named[each.key].cast(each.arrow_type) for each in self._outputs]
        return pa.StructArray.from_arrays(columns, [each.key for each in self._outputs])

    def _module(self) -> Any:
        key = self._shipped.digest
        module = _loaded.pop(key, None)
        if module is None:
            while len(_loaded) >= _MOST_LOADED:
                del _loaded[next(iter(_loaded))]
            with self._shipped.opened() as folder:
                module = load_module(folder)
        _loaded[key] = module
        return module


@final
@dataclass(frozen=True)
class Meeting:
    """Binding of columns to a model, their kinds in training, and the loss that defines outputs."""

    binding: dict[str, Any]
    kinds: dict[str, str]
    loss: str | dict[str, str | None] | None


def score_rows(module: nn.Module, meeting: Meeting, rows: pa.StructArray) -> dict[Output, pa.Array]:
    """Return a model's outputs for some rows, as columns."""
    records = as_records(pa.RecordBatch.from_struct_array(rows), meeting.kinds)
    shape = Shape(tuple(records.schema.names))
    binding = Binding.parse(meeting.binding)
    binder = Binder(binding, module.forward, shape, dtype_of(module), expand=expand)
    binder = suited(runner(module, binder), binder, lambda found: found.read(records.slice(0, 2)))
    slices = [records.slice(start, _SLICE) for start in range(0, len(rows), _SLICE)]
    found = [_score_slice(module, binder, meeting, each) for each in slices]
    return {each: pa.concat_arrays([part[each] for part in found]) for each in found[0]}


def _score_slice(
    module: nn.Module, binder: Binder, meeting: Meeting, records: pa.RecordBatch
) -> dict[Output, pa.Array]:
    positional, named = binder.arguments(binder.read(records))
    try:
        with torch.inference_mode():
            output = module(*positional, **named)
    except RuntimeError as error:
        names = ", ".join(f"'{name}'" for name in records.schema.names)
        columns = "column" if len(records.schema) == 1 else "columns"
        raise DataError(f"forward() does not take the {columns} {names}: {error}") from error
    found = spark_columns(output, meeting.loss)
    lengths = {len(column) for column in found.values()}
    if lengths != {len(records)}:
        raise DataError(
            f"{len(records)} rows gave outputs of {sorted(lengths)} rows: forward() must give one "
            "output for each row"
        )
    return found


def with_scores(frame: DataFrame, inputs: list[Column], scoring: Scoring) -> DataFrame:
    """Return the frame with the outputs in an additional column, `SCORED`."""
    use_own_python(frame.sparkSession)
    rows = F.struct(*inputs)
    if hasattr(F, "arrow_udf"):
        udf = F.arrow_udf(_over_arrays(scoring), scoring.spark_type)
        # Otherwise a filter on predictions would compute them twice.
        score = udf.asNondeterministic()
        if not any(isinstance(field.dataType, UserDefinedType) for field in frame.schema):
            return frame.withColumn(SCORED, score(rows))
        # Spark 4.3 cannot pass the columns of files to Python directly if there are vectors among
        # them. A condition that its optimizer cannot resolve makes it convert row by row.
        given = frame.withColumn(_ROWS, F.when(F.monotonically_increasing_id() >= 0, rows))
        return given.withColumn(SCORED, score(_ROWS)).drop(_ROWS)
    given = frame.withColumn(_ROWS, rows)
    schema = frame.withColumn(SCORED, F.lit(None).cast(scoring.spark_type)).schema
    return given.mapInArrow(_over_batches(scoring), schema)


def _over_arrays(scoring: Scoring) -> Callable[..., Any]:
    def scored(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for rows in arrays:
            yield scoring.score(rows)

    return scored


def _over_batches(scoring: Scoring) -> Callable[..., Any]:
    """Return a function for Spark before 4.1, which lacks Arrow UDFs; it gets all columns."""

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            place = batch.schema.get_field_index(_ROWS)
            outputs = scoring.score(batch.column(place))
            names = [SCORED if name == _ROWS else name for name in batch.schema.names]
            columns = [outputs if at == place else each for at, each in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(columns, names)

    return scored


def first_rows(frame: DataFrame, inputs: list[Column], count: int = 2) -> pa.StructArray:
    """Return a few rows of a frame as the model reads them."""
    use_own_python(frame.sparkSession)
    frame = frame.select(F.struct(*inputs).alias(_ROWS)).limit(count)
    if hasattr(frame, "toArrow"):
        tables = [frame.toArrow()]
    else:
        streams = frame.mapInArrow(_as_bytes, "data binary").collect()
        tables = [pa.ipc.open_stream(bytes(row.data)).read_all() for row in streams]
    found = [table for table in tables if table.num_rows]
    if not found:
        raise DataError("the DataFrame has no rows")
    column = found[0].column(_ROWS).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({"data": [sink.getvalue().to_pybytes()]})


def kinds_of(rows: pa.StructArray) -> dict[str, str]:
    """Return the kind of each column."""
    return {field.name: kind_of(field.type) for field in rows.type}
