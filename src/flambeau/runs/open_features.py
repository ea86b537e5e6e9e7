"""Features of a run: its fitted pipeline, attached to data with raw columns."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from flambeau.checkpoint import RunDirectory
from flambeau.config import FileData, JobSettings
from flambeau.data.arrow_columns import items_are_text
from flambeau.data.binding import Binder
from flambeau.data.prepared_files import prepared_by
from flambeau.data.source import Source, StreamedSource
from flambeau.data.sources.frame_source import FrameSource
from flambeau.errors import DataError
from flambeau.features.pipeline import Pipeline
from flambeau.features.raw_data import raw_files
from flambeau.features.saved import FILE
from flambeau.features.source_features import PipelineFeatures
from flambeau.runs.open_data import FEATURES


def with_features(source: Source, run: RunDirectory, settings: JobSettings, data: Any) -> Source:
    """Return a source of the raw columns of the run's pipeline, with that pipeline attached.

    Data that the same pipeline has prepared already has the features.
    """
    if settings.features is None or prepared_by(data) == settings.features:
        return source
    if not isinstance(source, StreamedSource | FrameSource):
        raise DataError(
            "features= are made of tables: files, data frames or dicts of columns, not of arrays "
            "without names, Datasets or DataLoaders"
        )
    pipeline = load_pipeline(run)
    _require_raw(source.schema, pipeline)
    if isinstance(source, StreamedSource):
        source, pipeline = pipeline.fused(source)
    source.features = PipelineFeatures(pipeline, source.schema)
    return source


def _require_raw(schema: pa.Schema, pipeline: Pipeline) -> None:
    """Raise `DataError` for numbers where the pipeline was fitted on texts: ids would differ."""
    assert pipeline.schema_ is not None
    for field in pipeline.schema_:
        kind = schema.field(field.name).type if field.name in schema.names else pa.null()
        if items_are_text(field.type) and pa.types.is_integer(kind):
            raise DataError(
                f"column '{field.name}' holds numbers ({kind}), and the features of this run are "
                f"made of texts ({field.type}): give the raw data, not what was made of it (of "
                f"digits in a CSV file: options={{'types': {{'{field.name}': 'string'}}}})"
            )


def as_raw_files(data: FileData, run: RunDirectory) -> FileData:
    """Return files as the run's pipeline reads them; prepared files are unchanged."""
    if prepared_by(data) is not None:
        return data
    return raw_files(data, load_pipeline(run).format)


def load_pipeline(run: RunDirectory) -> Pipeline:
    """Return the pipeline of a run, whose code the caller runs anyway."""
    folder = run.code / FEATURES
    file = folder / FILE
    return _loaded(folder, file.stat().st_mtime_ns if file.exists() else 0)


@lru_cache(maxsize=4)
def _loaded(folder: Path, written: int) -> Pipeline:
    return Pipeline.load(folder, trust=True)


def raw_schema(run: RunDirectory, source: Source | None, binder: Binder) -> pa.Schema:
    """Return the raw columns, with types, from which a run makes those that its binder takes.

    `source` is the binder's source: raw data, or data that was prepared before.
    """
    pipeline = load_pipeline(run)
    assert pipeline.schema_ is not None
    if isinstance(source, StreamedSource | FrameSource) and source.features is not None:
        schema = source.raw_schema if isinstance(source, StreamedSource) else source.schema
        return pa.schema([schema.field(name) for name in binder.columns])
    features = PipelineFeatures(pipeline, pipeline.schema_)
    return features.reader(binder.columns).schema
