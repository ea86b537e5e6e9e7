"""Feature pipelines: from raw columns to model inputs, fitted once and identical everywhere."""

from flambeau.features.criteo import criteo
from flambeau.features.operations.cast import Cast
from flambeau.features.operations.categorify import Categorify
from flambeau.features.operations.columns import Custom, Drop, Rename, Select
from flambeau.features.operations.encodings import CountEncode, OneHot, TargetEncode
from flambeau.features.operations.hashing import Cross, Hash
from flambeau.features.operations.joining import Join
from flambeau.features.operations.numbers import (
    Bucketize,
    Clip,
    FillMissing,
    Log,
    Normalize,
    Threshold,
)
from flambeau.features.operations.texts_and_times import DateParts, SplitText
from flambeau.features.operations.values import MapValues
from flambeau.features.pipeline import Pipeline
from flambeau.features.splits import by_file, by_hash, by_ratio, by_time

__all__ = [
    "Bucketize",
    "Cast",
    "Categorify",
    "Clip",
    "CountEncode",
    "Cross",
    "Custom",
    "DateParts",
    "Drop",
    "FillMissing",
    "Hash",
    "Join",
    "Log",
    "MapValues",
    "Normalize",
    "OneHot",
    "Pipeline",
    "Rename",
    "Select",
    "SplitText",
    "TargetEncode",
    "Threshold",
    "by_file",
    "by_hash",
    "by_ratio",
    "by_time",
    "criteo",
]
