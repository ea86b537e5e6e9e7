"""A share of the rows of streamed files: those between two fractions of all rows, in order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import pyarrow as pa

from flambeau.data.source import Shard, StreamedSource
from flambeau.errors import DataError


@final
class RowShare(StreamedSource):
    """The rows of another source between two fractions of their number.

    Adjacent shares, such as (0, 0.8) and (0.8, 1), contain each row exactly once.
    """

    def __init__(self, source: StreamedSource, share: tuple[float, float]) -> None:
        self.source, self.share = source, share
        self.warnings = source.warnings
        self._places: dict[tuple[str, int], tuple[Shard, int]] = {}
        self._shards: list[Shard] | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @property
    def raw_schema(self) -> pa.Schema:
        return self.source.raw_schema

    def shards(self) -> Sequence[Shard]:
        if self._shards is None:
            self._shards = self._cut()
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        whole, offset = self._places[shard.path, shard.part]
        end = shard.rows if stop is None else min(stop, shard.rows)
        return self.source.read(whole, columns, offset + start, offset + end)

    def _cut(self) -> list[Shard]:
        shards = self.source.shards()
        self.skipped_rows = self.source.skipped_rows
        total = sum(shard.rows for shard in shards)
        low, high = (rows_before(bound, total) for bound in self.share)
        found, first = [], 0
        for shard in shards:
            start, stop = max(low - first, 0), min(high - first, shard.rows)
            first += shard.rows
            if start < stop:
                found.append(replace(shard, rows=stop - start))
                self._places[shard.path, shard.part] = shard, start
        return found


def rows_before(bound: float, total: int) -> int:
    """Return the number of rows before a fraction of `total` rows.

    A fraction that differs from a row's position only by rounding gives that position.
    """
    return int(total * bound + 1e-3)


def share_of(source: Any, share: tuple[float, float], name: str) -> RowShare:
    """Return a share of the rows of a source for files of a format."""
    if not isinstance(source, StreamedSource):
        raise DataError(f"share= is for tables and texts; format {name!r} has no such option")
    return RowShare(source, share)
