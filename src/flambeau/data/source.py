"""Interface between a data format and the loader.

There are three kinds of sources:

- an `IndexedSource` returns any rows by number (arrays, image files, a map-style Dataset);
- a `StreamedSource` has shards that are read from their start (Parquet, CSV, Arrow);
- an `IterableSource` has the batches of the user's own iterator.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from flambeau.data.batch import Batch
from flambeau.data.raw_columns import Features

#: Rows as a source returns them, for a binder.
Rows: TypeAlias = Batch | pa.RecordBatch


@dataclass(frozen=True)
class Shard:
    """A part of a streamed source that is read from its start: a row group, a byte range.

    If only the workers of one agent can read it, `home` is the number of that agent.
    """

    path: str
    part: int
    rows: int
    home: int | None = None


@dataclass(frozen=True)
class Share:
    """The part of the data that a worker's own iterator should give: the `index`-th of `count`."""

    index: int
    count: int
    epoch: int
    seed: int


class IndexedSource(ABC):
    """Source of rows by number."""

    #: Names of the columns that fill the parameters of `forward` by position, and of labels, if the
    #: job does not name any (array data). Empty for data with real column names.
    positional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    #: Features that can be made from its columns, if these are raw.
    features: Features | None = None
    #: Whether taking rows only copies memory, so that reading ahead cannot hide any waiting.
    in_memory: bool = False

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Rows:
        """Return the given rows (int64 numbers) in that order; all columns if none are named."""


class StreamedSource(ABC):
    """Source of shards of Arrow batches."""

    #: Features that can be made from its columns, if these are raw.
    features: Features | None = None
    #: Warnings about these files for the user, as sentences.
    warnings: tuple[str, ...] = ()
    #: Number of bad rows that were skipped; known after `shards`, and the same on every worker.
    skipped_rows: int = 0

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns and their types, known without reading rows."""

    @property
    def raw_schema(self) -> pa.Schema:
        """Columns as they are in the data, if `read` changes them."""
        return self.schema

    @abstractmethod
    def shards(self) -> Sequence[Shard]:
        """Return all shards with their exact numbers of rows; the same list on every worker."""

    @abstractmethod
    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows `start` to `stop` of a shard in order, in record batches of bounded size."""


class IterableSource(ABC):
    """Source of batches (or items) from the user's own iterator."""

    positional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @abstractmethod
    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        """Yield this worker's batches of one epoch."""


Source = IndexedSource | StreamedSource | IterableSource
