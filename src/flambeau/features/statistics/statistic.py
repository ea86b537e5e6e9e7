"""What is known of training rows: gathered in parts, merged, and the same wherever it is gathered.

Rows are added to an accumulator. What it has gathered leaves it as tables, each for one partition
of the values: values of different partitions have nothing to do with each other, so partitions are
merged one by one, perhaps by different processes. Tables are merged in the order of shards.
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
    """What a statistic may use to finish: about `memory` bytes, and a folder for the rest."""

    folder: Path
    memory: int


class Accumulator(ABC):
    """What has been gathered so far of one statistic, in one process."""

    @abstractmethod
    def add(self, arrays: Mapping[str, pa.Array], shard: int) -> None:
        """Add rows of a shard."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The memory that it holds."""

    @abstractmethod
    def take(self) -> dict[int, pa.Table]:
        """Return what was gathered, by partition, and begin anew."""


class Statistic(ABC):
    """Which statistic of which columns; its accumulators and tables."""

    #: The columns that it is gathered from.
    columns: tuple[str, ...]
    #: Whether it depends on the order of rows, and on how they are divided into shards.
    ordered: ClassVar[bool] = False

    @abstractmethod
    def accumulator(self) -> Accumulator:
        """Return an empty accumulator."""

    @abstractmethod
    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return one table for several of the same partition."""

    @abstractmethod
    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        """Return the statistic itself, from the merged tables of all partitions."""

    def stream(self, partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
        """Return the statistic itself in pieces, from partial tables that may exceed the memory.

        This is for statistics that are small whatever the data; others do it piece by piece.
        """
        yield self.finish([self.merge([*partials.tables(part)]) for part in partials.partitions])
