"""Interface between binders and the features that are made from raw columns of a source.

Pipelines of features are in a layer above this package, so binders depend on this module only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Shorthand:
    """Operations that a job's `hash=` and `crosses=` stand for.

    `salts` has the columns whose texts become ids by hash, with their salts; `crosses` has the
    columns to make, with the columns that they combine. `unused` are columns that nothing else
    needs.
    """

    salts: Mapping[str, str]
    crosses: Mapping[str, Sequence[str]]
    unused: Collection[str] = ()


class Operations(Protocol):
    """Operations on rows of given types; the resulting rows have the columns of `schema`."""

    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...


#: Function that returns the operations that a shorthand stands for, for rows of these types.
Expand = Callable[[Shorthand, pa.Schema], Operations]


class RawReader(ABC):
    """Reader that makes some features from record batches; `columns` are the raw ones needed."""

    columns: tuple[str, ...]

    @abstractmethod
    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the needed features, and needed columns that are not changed."""


class Features(ABC):
    """Features that can be made from a source's columns."""

    #: Names of the features, and of columns that are not changed.
    columns: tuple[str, ...]

    @abstractmethod
    def reader(self, needed: Sequence[str]) -> RawReader:
        """Return a reader for the needed features."""
