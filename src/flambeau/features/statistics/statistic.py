"""Statistics of training rows: gathered in parts and merged, with the same result anywhere.

Rows are added to an accumulator, which returns tables, each for one partition of the values. Values
of different partitions are independent, so partitions are merged one by one, perhaps by different
processes. Tables are merged in the order of shards.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from flambeau.features.statistics.partial_tables import PartialTables


@dataclass(frozen=True)
class Workspace:
    """The resources to finish a statistic: about `memory` bytes, and a folder for the rest."""

    folder: Path
    memory: int


class Accumulator(ABC):
    """The data gathered so far for one statistic, in one process."""

    @abstractmethod
    def add(self, arrays: Mapping[str, pa.Array], shard: int) -> None:
        """Add rows of a shard."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""

    @abstractmethod
    def take(self) -> dict[int, pa.Table]:
        """Return the gathered data by partition, and start over."""


class Statistic(ABC):
    """A statistic of columns, with its accumulators and tables."""

    #: The columns that it is gathered from.
    columns: tuple[str, ...]
    #: Whether it depends on the order of rows, and on how they are divided into shards.
    ordered: ClassVar[bool] = False

    @abstractmethod
    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""

    @abstractmethod
    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge several tables of the same partition into one."""

    @abstractmethod
    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        """Return the statistic itself, from the merged tables of all partitions."""

    def stream(self, partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
        """Return the statistic itself in pieces, from partial tables that may exceed the memory.

        This is for statistics that are small for any data; others override it to work in pieces.
        """
        yield self.finish([self.merge([*partials.tables(part)]) for part in partials.partitions])
