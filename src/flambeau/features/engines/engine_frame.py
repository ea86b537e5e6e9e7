"""The interface of engine data for pipelines: its columns, and work on its rows in place."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from flambeau.config.data import is_ray_dataset, is_spark_frame
from flambeau.errors import DataError

#: Prefix of a task's error about the data, to find it within an engine's stack traces.
FAULT = "Features cannot be made: "
_FAULT = re.compile(re.escape(FAULT) + r"(?P<text>[^\n]*)")


def raise_fault(error: BaseException) -> None:
    """Raise the error that a task reported about the data, if that caused the failure."""
    found = _FAULT.search(str(error))
    if found:
        raise DataError(found["text"].strip()) from None


class Work(Protocol):
    """Work on some of the rows in an engine task, to which it is sent as a pickle."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the resulting record batches for those of the task."""


class EngineFrame(ABC):
    """Engine data. Its rows have no order, and are recomputed each time they are read."""

    #: Its name in messages, and the call that writes it to files.
    name: str
    writes: str
    #: The columns, with the types that work receives.
    schema: pa.Schema

    @abstractmethod
    def map(self, work: Work, schema: pa.Schema) -> Any:
        """Return engine data with the results of the work on all rows, computed lazily."""

    @abstractmethod
    def run(self, work: Work, schema: pa.Schema, key: str, parts: int) -> Iterator[dict[str, Any]]:
        """Do the work on all rows, and return the resulting rows.

        They are returned in `parts`, one after the other; rows with equal keys are in one part.
        """


def is_engine_frame(data: Any) -> bool:
    """Return whether `data` is a Spark DataFrame or a Ray Dataset."""
    return is_spark_frame(data) or is_ray_dataset(data)


def engine_frame(data: Any) -> EngineFrame:
    """Return engine data wrapped for pipelines."""
    if is_spark_frame(data):
        from flambeau.features.engines.spark_frame import SparkFrame

        return SparkFrame(data)
    from flambeau.features.engines.ray_frame import RayFrame

    return RayFrame(data)
