"""Source of text rows in files; a shard is a range of lines."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

import pyarrow as pa

from flambeau.config.plural import number_of
from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.files import unsplittable
from flambeau.data.sources.paths import Paths, find_files
from flambeau.data.sources.record_batches import rows_between
from flambeau.data.sources.text.row_faults import (
    MESSAGES,
    WAY_OUT,
    Fault,
    OnBadRow,
    shortened,
    skips,
)
from flambeau.data.sources.text.row_parser import Parsed, RowParser, require_count
from flambeau.data.sources.text.text_lines import (
    Block,
    LineRange,
    RowMarks,
    blocks,
    line_number,
    line_ranges,
)
from flambeau.data.sources.urls import shown
from flambeau.errors import DataError

SHARD_BYTES = 64 << 20
#: A directory stands for all files in it, since such logs seldom have a suffix.
_ANY_NAME = ("",)


@final
class TextSource(StreamedSource):
    """Rows of plain, gzip or zstd files as a parser reads them, in the order of the files.

    A bad row is an error with its position, or it is skipped and counted. Uncompressed files are
    cut at line ends into shards of about `shard_bytes`; a compressed file is one shard.
    """

    def __init__(
        self,
        path: Paths,
        parser: RowParser,
        *,
        on_bad_row: OnBadRow = "error",
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self._skip = skips(on_bad_row)
        require_count("shard_bytes", shard_bytes, 1)
        self.parser = parser
        self._raw_schema = parser.schema
        self._files = find_files(path, _ANY_NAME, skip_empty=self._skip)
        self.warnings = unsplittable(self._files)
        self._ranges = [part for file in self._files for part in line_ranges(file, shard_bytes)]
        self._shards: list[Shard] = []
        self._marks: dict[int, RowMarks] = {}

    @property
    def schema(self) -> pa.Schema:
        return self.parser.schema

    @property
    def raw_schema(self) -> pa.Schema:
        return self._raw_schema

    def parsed_by(self, parser: RowParser) -> "TextSource":
        """Return a source of the same lines for another parser of the same rows."""
        changed = copy.copy(self)
        changed.parser = parser
        return changed

    def shards(self) -> Sequence[Shard]:
        if not self._shards:
            self.skipped_rows = 0
            shards = (Shard(x.path, n, self._count(n, x)) for n, x in enumerate(self._ranges))
            self._shards = [shard for shard in shards if shard.rows]
        if not self._shards:
            raise DataError(f"{shown(self._files[0])} has no rows{self._told_skipped()}")
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        lines, position = self._ranges[shard.part], 0
        if shard.part in self._marks:
            position, first = self._marks[shard.part].before(start)
            lines = replace(lines, start=first)
        for block in blocks(lines):
            if stop is not None and position >= stop:
                return
            batch = self._parse(lines.path, block).batch.select(list(columns))
            last = None if stop is None else stop - position
            yield from rows_between([batch], start - position, last)
            position += batch.num_rows

    def _count(self, part: int, lines: LineRange) -> int:
        self._marks[part] = marks = RowMarks()
        rows = 0
        for block in blocks(lines):
            marks.add(rows, block.position)
            rows += self._count_block(lines.path, block)
        return rows

    def _count_block(self, path: str, block: Block) -> int:
        if not self._skip:
            return self.parser.count(block.data)
        parsed = self._parse(path, block)
        self.skipped_rows += parsed.skipped
        return int(parsed.batch.num_rows)

    def _parse(self, path: str, block: Block) -> Parsed:
        parsed = self.parser.parse(block.data, skip=self._skip)
        if parsed.fault is not None:
            raise DataError(self._message(path, block, parsed.fault))
        return parsed

    def _message(self, path: str, block: Block, fault: Fault) -> str:
        line = block.data[fault.start : fault.stop].tobytes()
        part = block.data[fault.where : fault.stop].tobytes().split(maxsplit=1)
        number = line_number(path, block.position + fault.start)
        text, hint = shortened(part[0] if part else line), self.parser.describe(line)
        return f"{shown(path)} line {number}: {MESSAGES[fault.what]}: {text}; {hint} ({WAY_OUT})"

    def _told_skipped(self) -> str:
        return f", only {number_of(self.skipped_rows, 'bad row')}" if self.skipped_rows else ""
