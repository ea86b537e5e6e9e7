"""The features of a source of raw columns, computed as its rows are read."""

from collections.abc import Sequence
from typing import final

import pyarrow as pa

from flambeau.data.raw_columns import Features, RawReader
from flambeau.features.bound_pipeline import BoundPipeline
from flambeau.features.pipeline import Pipeline


@final
class PipelineFeatures(Features):
    """The features that a fitted pipeline makes of rows with the columns of `schema`."""

    def __init__(self, pipeline: Pipeline, schema: pa.Schema) -> None:
        self._pipeline, self._schema = pipeline, schema
        self.columns = pipeline.columns_from(schema.names)

    def reader(self, needed: Sequence[str]) -> "PipelineReader":
        return PipelineReader(self._pipeline.bind(self._schema, needed))


@final
class PipelineReader(RawReader):
    """A reader that makes features of batches with a pipeline that is bound to their types."""

    def __init__(self, bound: BoundPipeline) -> None:
        self._bound = bound
        self.columns = bound.columns
        #: The raw columns with their types.
        self.schema = bound.raw_schema

    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        return self._bound(records)
