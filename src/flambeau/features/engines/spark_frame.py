"""Spark DataFrames: work in `mapInArrow`, in classic sessions and Spark Connect."""

import inspect
from collections.abc import Iterator
from typing import Any, final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField

from flambeau.clusters.spark.cluster import (
    Task,
    checked_task,
    is_connect,
    raise_mistake,
    use_own_python,
    versions,
)
from flambeau.clusters.spark.columns import for_arrow
from flambeau.errors import ConfigError, DataError
from flambeau.features.engines.engine_frame import FAULT, EngineFrame, Work, raise_fault
from flambeau.features.engines.engine_work import Typed
from flambeau.features.engines.loaded_work import PackedWork, pack

#: Limit on work in a query of Spark Connect, in bytes: its messages are limited to 128 MB.
MOST_CONNECT = 64 << 20
#: Spark keeps times in UTC.
_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)


@final
class SparkFrame(EngineFrame):
    """A DataFrame of Spark."""

    name = "a Spark DataFrame"
    writes = "frame.write.parquet(...)"

    def __init__(self, frame: DataFrame) -> None:
        repeated = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
        if repeated:
            raise DataError(f"the DataFrame has several columns '{repeated[0]}'; rename them")
        use_own_python(frame.sparkSession)
        self._rows = frame.select([for_arrow(each.name, each.dataType) for each in frame.schema])
        self.schema = pa.schema([_arrow_field(field) for field in self._rows.schema])

    def map(self, work: Work, schema: pa.Schema) -> DataFrame:
        """Return another DataFrame: see `EngineFrame`."""
        schema = pa.schema([(field.name, spark_type(field.type)) for field in schema])
        packed = pack(Typed(work, schema))
        if is_connect(self._rows.sparkSession) and len(packed.data) > MOST_CONNECT:
            raise ConfigError(
                f"this pipeline has {len(packed.data) >> 20:,} MB of statistics, and Spark Connect "
                f"sends at most {MOST_CONNECT >> 20} MB with a query: use a classic session, or "
                "make vocabularies smaller (min_count, max_size)"
            )
        task = checked_task(_running(packed), versions())
        return self._rows.mapInArrow(task, from_arrow_schema(schema, prefer_timestamp_ntz=True))

    def run(self, work: Work, schema: pa.Schema, key: str, parts: int) -> Iterator[dict[str, Any]]:
        """Return the resulting rows after a shuffle by key: see `EngineFrame`."""
        made = self.map(work, schema).repartition(parts, key)
        try:
            for row in made.toLocalIterator(prefetchPartitions=True):
                yield row.asDict()
        except PySparkException as error:
            raise_fault(error)
            raise_mistake(error)
            raise


def _running(packed: PackedWork) -> Task:
    """Return a task that does packed work. It is pickled by value: see `checked_task`."""
    digest, data, fault = packed.digest, packed.data, FAULT

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from flambeau.errors import UserError
        from flambeau.features.engines.loaded_work import load_work

        try:
            yield from load_work(digest, lambda: data)(batches)
        except UserError as error:
            raise RuntimeError(f"{fault}{error}") from error

    return run


def _arrow_field(field: StructField) -> pa.Field:
    """Return the Arrow field of a column in `mapInArrow`."""
    try:
        return pa.field(field.name, to_arrow_type(field.dataType, **_UTC))
    except (PySparkException, TypeError, NotImplementedError) as error:
        raise DataError(
            f"column '{field.name}' is of type {field.dataType.simpleString()}, which Arrow does "
            "not have: cast it to another type, or drop it"
        ) from error


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the closest Arrow type that Spark supports."""
    types = pa.types
    if kind in _SIMILAR:
        return _SIMILAR[kind]
    if types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([(field.name, spark_type(field.type)) for field in kind])
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_date(kind):
        return pa.date32()
    return kind


_SIMILAR = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
