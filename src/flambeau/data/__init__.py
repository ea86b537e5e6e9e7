"""Batches, the sources they come from, and what is done to them before training."""

from flambeau.data.arrow_columns import to_columns
from flambeau.data.batch import Batch, Column, concatenate
from flambeau.data.images import ImageTransform
from flambeau.data.source import IndexedSource, IterableSource, Shard, Share, Source, StreamedSource
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.shared_arrays import array_columns, spool

__all__ = [
    "ArraySource",
    "Batch",
    "Column",
    "ImageTransform",
    "IndexedSource",
    "IterableSource",
    "Shard",
    "Share",
    "Source",
    "StreamedSource",
    "array_columns",
    "concatenate",
    "open_source",
    "spool",
    "to_columns",
]
