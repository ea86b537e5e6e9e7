"""What stands between a source of raw columns and a binder: the features that are made of them.

Pipelines of features are above this package, so that binders know them by what is here only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Shorthand:
    """Operations that a job's `hash=` and `crosses=` stand for.

    `salts` are the columns whose texts become ids by hash, with their salts; `crosses` the columns
    to make, with those that they are made of. `unused` are columns that nothing else needs.
    """

    salts: Mapping[str, str]
    crosses: Mapping[str, Sequence[str]]
    unused: Collection[str] = ()


class Operations(Protocol):
    """Operations on rows of certain types, which make rows with the columns of `schema`."""

    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...


#: Returns the operations that a shorthand stands for, for rows of these types.
Expand = Callable[[Shorthand, pa.Schema], Operations]


class RawReader(ABC):
    """Makes some features of record batches; `columns` are the raw ones that it reads."""

    columns: tuple[str, ...]

    @abstractmethod
    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the needed features, and needed columns that stay as they are."""


class Features(ABC):
    """The features that can be made of a source's columns."""

    #: Their names, and those of columns that stay as they are.
    columns: tuple[str, ...]

    @abstractmethod
    def reader(self, needed: Sequence[str]) -> RawReader:
        """Return what makes the needed features."""
