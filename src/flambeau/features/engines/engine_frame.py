"""What pipelines ask of an engine's data: its columns, and work on its rows where they are."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from flambeau.config.data import is_ray_dataset, is_spark_frame
from flambeau.errors import DataError

#: Starts what a task reports about the data, in the midst of an engine's stack traces.
FAULT = "Features cannot be made: "
_FAULT = re.compile(re.escape(FAULT) + r"(?P<text>[^\n]*)")


def raise_fault(error: BaseException) -> None:
    """Raise what a task has reported about the data, if that ended the work."""
    found = _FAULT.search(str(error))
    if found:
        raise DataError(found["text"].strip()) from None


class Work(Protocol):
    """Work on some of the rows, in a task of the engine. It is sent there as a pickle."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return record batches for those of the task."""


class EngineFrame(ABC):
    """Data of an engine. Its rows have no order, and are computed anew whenever they are read."""

    #: What it is called in messages, and how it is written to files.
    name: str
    writes: str
    #: The columns, in the types that work is given.
    schema: pa.Schema

    @abstractmethod
    def map(self, work: Work, schema: pa.Schema) -> Any:
        """Return data of the engine with what the work makes of all rows, computed when needed."""

    @abstractmethod
    def run(self, work: Work, schema: pa.Schema, key: str, parts: int) -> Iterator[dict[str, Any]]:
        """Do the work on all rows, and return the rows that it makes.

        They come in `parts`, one after the other; rows with equal keys are in one part.
        """


def is_engine_frame(data: Any) -> bool:
    """Return whether it is data of an engine."""
    return is_spark_frame(data) or is_ray_dataset(data)


def engine_frame(data: Any) -> EngineFrame:
    """Return data of an engine as pipelines use it."""
    if is_spark_frame(data):
        from flambeau.features.engines.spark_frame import SparkFrame

        return SparkFrame(data)
    from flambeau.features.engines.ray_frame import RayFrame

    return RayFrame(data)
