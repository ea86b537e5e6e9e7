"""A random part of the rows of a source, chosen by shard and row number."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, final

import numpy as np
import pyarrow as pa

from flambeau.config.plural import number_of
from flambeau.data.source import Shard, StreamedSource
from flambeau.errors import DataError

Rows = np.ndarray[Any, np.dtype[np.int64]]


@final
class Split(StreamedSource):
    """Rows that are held out with probability `ratio`, or with `held_out=False` all others.

    The choice depends only on the seed, the shard and the row's number in it. So every worker
    chooses the same rows, and their numbers are known without reading them.
    """

    def __init__(
        self, source: StreamedSource, ratio: float, *, held_out: bool, seed: int = 0
    ) -> None:
        self._source, self._ratio, self._held_out, self._seed = source, ratio, held_out, seed
        self._shards = list(source.shards())
        self._number = {(shard.path, shard.part): i for i, shard in enumerate(self._shards)}
        self._chosen = cache(self._choose)
        self._own = [
            replace(shard, rows=len(self._chosen(number)))
            for number, shard in enumerate(self._shards)
        ]
        self.skipped_rows = source.skipped_rows
        if not sum(shard.rows for shard in self._own):
            rows = sum(shard.rows for shard in self._shards)
            part = "held-out data" if held_out else "training data"
            raise DataError(
                f"testRatio={ratio:g} of {number_of(rows, 'row')} leaves no {part}; choose "
                "another ratio, or give validateInput"
            )

    @property
    def schema(self) -> pa.Schema:
        """Columns and their types; see `StreamedSource`."""
        return self._source.schema

    def shards(self) -> Sequence[Shard]:
        """Return the shards with the numbers of chosen rows; see `StreamedSource`."""
        return self._own

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows `start` to `stop` of a shard; see `StreamedSource`."""
        number = self._number[shard.path, shard.part]
        wanted = self._chosen(number)[start:stop]
        if not len(wanted):
            return
        first, last = int(wanted[0]), int(wanted[-1]) + 1
        done = first
        for records in self._source.read(self._shards[number], columns, first, last):
            bounds = np.searchsorted(wanted, [done, done + records.num_rows])
            inside = wanted[bounds[0] : bounds[1]] - done
            done += records.num_rows
            if len(inside):
                yield records.take(pa.array(inside))

    def _choose(self, number: int) -> Rows:
        """Return the numbers of the chosen rows of a shard."""
        key = [self._seed, number]
        drawn = np.random.default_rng(key).random(self._shards[number].rows) < self._ratio
        return np.flatnonzero(drawn == self._held_out).astype(np.int64)
