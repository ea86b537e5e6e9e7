"""The seam between a format and the loader.

There are three kinds of data, by what can be asked of them:

- an `IndexedSource` gives any rows by number (arrays, image files, a map-style Dataset);
- a `StreamedSource` has shards that are read from their start (Parquet, CSV, Arrow);
- an `IterableSource` is whatever the user's own iterator yields.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from flambeau.data.batch import Batch
from flambeau.data.raw_columns import Features

#: Rows as a source gives them, for a binder.
Rows: TypeAlias = Batch | pa.RecordBatch


@dataclass(frozen=True)
class Shard:
    """A part of a streamed source that is read from its start: a row group, a byte range.

    `home` is the agent whose workers alone can read it, where that is so.
    """

    path: str
    part: int
    rows: int
    home: int | None = None


@dataclass(frozen=True)
class Share:
    """Which part of the data a worker's own iterator should give: the `index`-th of `count`."""

    index: int
    count: int
    epoch: int
    seed: int


class IndexedSource(ABC):
    """Rows by number."""

    #: Column names that fill the parameters of `forward` by position, and those that are labels,
    #: when the job does not name any (array data). Empty for data with real column names.
    positional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    #: What makes features of its columns, if it has raw ones.
    features: Features | None = None
    #: Whether taking rows only copies memory, so that there is no wait to hide by reading ahead.
    in_memory: bool = False

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Rows:
        """The given rows (int64 numbers), in that order; all columns when none are named."""


class StreamedSource(ABC):
    """Shards of Arrow batches."""

    #: What makes features of its columns, if it has raw ones.
    features: Features | None = None
    #: What the user should know of these files, as sentences.
    warnings: tuple[str, ...] = ()
    #: Rows that were left out because they were bad; known after `shards`, the same everywhere.
    skipped_rows: int = 0

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns and their types, known without reading rows."""

    @property
    def raw_schema(self) -> pa.Schema:
        """The columns as they are in the data, if `read` changes them on the way."""
        return self.schema

    @abstractmethod
    def shards(self) -> Sequence[Shard]:
        """All shards with their exact numbers of rows; the same list on every worker."""

    @abstractmethod
    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows `start` to `stop` of a shard in order, in record batches of bounded size."""


class IterableSource(ABC):
    """Batches (or items) from the user's own iterator."""

    positional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @abstractmethod
    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        """This worker's batches of one epoch."""


Source = IndexedSource | StreamedSource | IterableSource
