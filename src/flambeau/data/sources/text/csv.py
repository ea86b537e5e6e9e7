"""CSV and TSV files; a shard is a range of lines."""

import csv as python_csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from flambeau.config.plural import number_of
from flambeau.config.settings import nearest
from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.files import (
    compression_of,
    first_bytes,
    open_range,
    open_stream,
    unsplittable,
)
from flambeau.data.sources.paths import Paths, find_files, reading
from flambeau.data.sources.record_batches import rows_between
from flambeau.data.sources.schemas import require_same_schema, require_unique_names
from flambeau.data.sources.text import csv_lines
from flambeau.data.sources.text.csv_skipping import good_rows
from flambeau.data.sources.text.encodings import (
    OTHER_ENCODING,
    UTF8,
    encoding_of,
    require_no_utf16,
)
from flambeau.data.sources.text.row_faults import WAY_OUT, OnBadRow, skips
from flambeau.data.sources.text.text_lines import RowMarks
from flambeau.data.sources.urls import shown
from flambeau.errors import ConfigError, DataError

SUFFIXES = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst")
_ROW = re.compile(r"Row #(\d+): ")
_NOT_UTF8 = "invalid UTF8 data"
_CONVERSION = "CSV conversion error"
_NO_HEADER = (
    "; if its first line has no names, give them as the option names, or for click logs "
    "format='criteo'"
)
_COLUMN = re.compile(r"In CSV column #(\d+): ")


@dataclass(frozen=True)
class _Lines:
    """Some lines of a file, from byte `start` to `stop` (None: the end of a compressed file)."""

    path: str
    names: tuple[str, ...]
    start: int
    stop: int | None

    def open(self) -> pa.NativeFile:
        if self.stop is None:
            return open_stream(self.path, self.start)
        return open_range(self.path, self.start, self.stop)


@dataclass(frozen=True)
class _GoodRows:
    """Good rows of a block of lines with all columns, and the number of bad rows that were skipped.

    `position` is the first byte of the block in the (decompressed) file.
    """

    position: int
    rows: pa.Table
    skipped: int


def _one_character(delimiter: str) -> str:
    if isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii():
        return delimiter
    text = f"delimiter={delimiter!r}: give one ASCII character"
    if isinstance(delimiter, str) and len(delimiter) == 2 and len(set(delimiter)) == 1:
        text += (
            f". With {delimiter[0]!r} there is an empty column between two others: if no value has "
            f"a {delimiter[0]!r}, give names= for these columns, too"
        )
    raise ConfigError(text)


@final
class CsvSource(StreamedSource):
    """Rows of delimited text, parsed by Arrow.

    The first line has the column names, unless `names` gives them. Types are inferred from the
    first rows of the first file and apply to all files; `types` (`{"price": "float64"}`) overrides
    them. Integers that exceed int64 are uint64, and larger ones text. Uncompressed files are cut at
    line ends into shards of about `shard_bytes`. A bad row is an error with its position, or it is
    skipped and counted. `encoding` is UTF-8 or one with one byte per character, such as "latin-1".
    """

    def __init__(
        self,
        path: Paths,
        *,
        delimiter: str = ",",
        encoding: str = UTF8,
        names: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        on_bad_row: OnBadRow = "error",
        shard_bytes: int = 64 << 20,
    ) -> None:
        self._skip = skips(on_bad_row)
        self._delimiter = _one_character(delimiter)
        self._encoding = encoding_of(encoding)
        self._shard_bytes = shard_bytes
        files = find_files(path, SUFFIXES, skip_empty=self._skip)
        require_no_utf16(first_bytes(files[0], 256), shown(files[0]))
        self.warnings = unsplittable(files)
        self._lines = [lines for file in files for lines in self._cut(file, names)]
        if not self._lines:
            raise DataError(f"{shown(files[0])} has a line of column names but no rows")
        self._shards: list[Shard] = []
        self._marks: dict[int, RowMarks] = {}
        self._schema = self._infer(self._lines[0], types or {})
        for lines in self._lines[1:]:
            self._require_same_names(lines)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def shards(self) -> Sequence[Shard]:
        if not self._shards:
            self.skipped_rows = 0
            shards = (Shard(x.path, n, self._count(n, x)) for n, x in enumerate(self._lines))
            self._shards = [shard for shard in shards if shard.rows]
        if not self._shards:
            others = number_of(self.skipped_rows, "bad row") if self.skipped_rows else "blank lines"
            raise DataError(f"{shown(self._lines[0].path)} has no rows, only {others}")
        return self._shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        lines, first = self._lines[shard.part], 0
        if shard.part in self._marks:
            first, position = self._marks[shard.part].before(start)
            lines = replace(lines, start=position)
        start, stop = start - first, None if stop is None else stop - first
        with self._explained(lines):
            for batch in rows_between(self._batches(lines, columns), start, stop):
                self._require_exact(batch, lines)
                yield batch

    def _batches(self, lines: _Lines, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not self._skip:
            yield from self._parse(lines, columns, self._types())
            return
        for block in self._good(lines):
            yield from block.rows.select(columns).to_batches()

    def _require_exact(self, batch: pa.RecordBatch, lines: _Lines) -> None:
        """Raise `DataError` for large integers in a column whose type could not be inferred."""
        for name in self._guessed.intersection(batch.schema.names):
            if rounded(batch.column(name)):
                raise DataError(
                    f"{shown(lines.path)}: column {name!r} has no value in the first rows and was "
                    f"taken for float64, which rounds its large numbers: give "
                    f"types={{{name!r}: 'int64'}}, or its actual type"
                )

    def _cut(self, path: str, names: Sequence[str] | None) -> list[_Lines]:
        start, hint = 0, ""
        if names is None:
            with reading(path, "CSV"):
                names, start = self._header(path)
            hint = _NO_HEADER
        require_unique_names(list(names), path, hint)
        if compression_of(path) is not None:
            return [_Lines(path, tuple(names), start, None)]
        ranges = csv_lines.line_ranges(path, start, self._shard_bytes)
        return [_Lines(path, tuple(names), first, last) for first, last in ranges]

    def _header(self, path: str) -> tuple[list[str], int]:
        line, end = csv_lines.header_line(path)
        # Arrow would decode in threads, which abort the process if it ends early.
        try:
            text = self._encoding.to_utf8(line).decode()
            names = next(python_csv.reader([text], delimiter=self._delimiter), [])
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(f"the line of names: {error}; {OTHER_ENCODING}") from error
        except python_csv.Error as error:
            raise pa.ArrowInvalid(f"the line of names: {error}") from error
        if not names:
            raise pa.ArrowInvalid("it is empty")
        return names, end

    def _infer(self, lines: _Lines, types: Mapping[str, str]) -> pa.Schema:
        given = {name: _type(name, kind, lines) for name, kind in types.items()}
        # With bad rows, whose position is unknown here, only text is sure to fit.
        kinds = dict.fromkeys(given, pa.string()) if self._skip else given
        options = self._options(lines, lines.names, kinds)
        options["parse_options"] = self._format(lenient=self._skip)
        with self._explained(lines):
            schema = csv.open_csv(self._first_rows(lines), **options).schema
        found = {field.name: given.get(field.name, _text_or(field.type)) for field in schema}
        doubles = [name for name, kind in found.items() if pa.types.is_float64(kind)]
        found |= self._large_integers(lines, [name for name in doubles if name not in given])
        # A column without any value so far most likely holds numbers.
        self._guessed = frozenset(name for name, kind in found.items() if pa.types.is_null(kind))
        return pa.schema(
            pa.field(name, pa.float64() if name in self._guessed else kind)
            for name, kind in found.items()
        )

    def _large_integers(self, lines: _Lines, doubles: Sequence[str]) -> dict[str, pa.DataType]:
        """Return types for columns whose first values are integers that a double would round."""
        if not doubles:
            return {}
        options = self._options(lines, doubles, dict.fromkeys(doubles, pa.string()))
        options["parse_options"] = self._format(lenient=self._skip)
        options["convert_options"].strings_can_be_null = True
        with self._explained(lines):
            texts = csv.open_csv(self._first_rows(lines), **options).read_next_batch()
        kinds = {name: integer_type(texts.column(name)) for name in doubles}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _require_same_names(self, lines: _Lines) -> None:
        found = pa.schema((name, self._types().get(name, pa.null())) for name in lines.names)
        require_same_schema(self._schema, self._lines[0].path, found, lines.path)

    def _good(self, lines: _Lines) -> Iterator[_GoodRows]:
        """Parse the lines block by block, without bad rows."""

        def parse(block: bytes) -> pa.Table:
            options = self._options(lines, lines.names, self._types())
            try:
                text = self._encoding.to_utf8(block)
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid(str(error)) from error
            return csv.read_csv(pa.BufferReader(text), **options)

        empty, position = self._schema.empty_table(), lines.start
        with reading(lines.path, "CSV"):
            for block in csv_lines.blocks(lines.open()):
                tables, skipped = good_rows(block, parse, self._delimiter)
                rows = pa.concat_tables([empty, *tables]).combine_chunks()
                yield _GoodRows(position, rows, skipped)
                position += len(block)

    def _count(self, part: int, lines: _Lines) -> int:
        if self._skip:
            return self._count_good(part, lines)
        with reading(lines.path, "CSV"):
            counted = csv_lines.count_rows(lines.open(), lines.path, lines.start)
        self._marks[part] = counted.marks
        if counted.quoted:
            self._require_rows_are_lines(lines, counted)
        return counted.rows

    def _count_good(self, part: int, lines: _Lines) -> int:
        self._marks[part] = marks = RowMarks()
        rows = 0
        for block in self._good(lines):
            marks.add(rows, block.position)
            rows += block.rows.num_rows
            self.skipped_rows += block.skipped
        return rows

    def _require_rows_are_lines(self, lines: _Lines, counted: csv_lines.Counted) -> None:
        """Raise `DataError` unless the parser, which handles quotes, finds one row in each line."""
        name = lines.names[0]
        with self._explained(lines):
            parsed = self._parse(lines, [name], {name: pa.string()})
            found = sum(batch.num_rows for batch in parsed)
        if found != counted.rows or csv_lines.ends_in_quotes(counted.last, self._delimiter):
            self._refuse_open_quote(lines)
            raise DataError(
                f"{shown(lines.path)}: {number_of(counted.rows, 'line')}, but "
                f"{number_of(found, 'row')}: check its quotes"
            )

    @contextmanager
    def _explained(self, lines: _Lines) -> Iterator[None]:
        """Turn errors of the parser into a `DataError` with file, line and column name."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise DataError(self._undecodable(lines, error)) from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, pa.ArrowInvalid) and _CONVERSION not in str(error):
                self._refuse_open_quote(lines)
            raise DataError(_message(lines, str(error))) from error

    def _open(self, lines: _Lines) -> pa.NativeFile:
        """Return the lines as UTF-8."""
        return self._encoding.stream(lines.open())

    def _first_rows(self, lines: _Lines) -> pa.NativeFile:
        """Return at least the first rows as UTF-8; if bad rows are skipped, with replaced bytes."""
        if not self._skip or self._encoding.is_utf8:
            return self._open(lines)
        block = next(csv_lines.blocks(lines.open()), b"")
        return pa.BufferReader(block.decode(self._encoding.name, "replace").encode())

    def _undecodable(self, lines: _Lines, error: UnicodeDecodeError) -> str:
        name = self._encoding.name
        found = csv_lines.undecodable_line(lines.path, lines.start, lines.stop, name)
        line, error = found or (0, error)
        return f"{shown(lines.path)} line {line}: {error}; {OTHER_ENCODING} ({WAY_OUT})"

    def _refuse_open_quote(self, lines: _Lines) -> None:
        row = csv_lines.first_open_quote(lines.path, lines.start, lines.stop, self._delimiter)
        if row is not None:
            line = csv_lines.line_of_row(lines.path, lines.start, row)
            raise DataError(
                f"{shown(lines.path)} line {line}: a quoted value continues on the next line, "
                "which is not supported: remove line ends inside values, or convert to Parquet"
            )

    def _parse(
        self, lines: _Lines, columns: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> csv.CSVStreamingReader:
        return csv.open_csv(self._open(lines), **self._options(lines, columns, types))

    def _options(
        self, lines: _Lines, columns: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> dict[str, Any]:
        return {
            # Only a single thread reports the row of an error.
            "read_options": csv.ReadOptions(use_threads=False, column_names=list(lines.names)),
            "parse_options": self._format(),
            "convert_options": csv.ConvertOptions(
                include_columns=list(columns), column_types=dict(types)
            ),
        }

    def _format(self, *, lenient: bool = False) -> csv.ParseOptions:
        handler = (lambda row: "skip") if lenient else None
        return csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=handler)

    def _types(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self._schema}


def _type(name: str, kind: str, lines: _Lines) -> pa.DataType:
    if name not in lines.names:
        hint = nearest(name, lines.names)
        raise DataError(f"types: {shown(lines.path)} has no column {name!r}; {hint}")
    try:
        return pa.type_for_alias(kind)
    except ValueError as error:
        raise DataError(f"types: {name!r} has unknown type {kind!r}, use e.g. 'float64'") from error


def _text_or(kind: pa.DataType) -> pa.DataType:
    """Return text for bytes, the type that Arrow infers for invalid UTF-8; reading reports it."""
    return pa.string() if pa.types.is_binary(kind) else kind


def _message(lines: _Lines, text: str) -> str:
    where, hint = shown(lines.path), ""
    if row := _ROW.search(text):
        number = csv_lines.line_of_row(lines.path, lines.start, int(row[1]))
        where, text = f"{where} line {number}", text.replace(row[0], "")
    if column := _COLUMN.search(text):
        name = lines.names[int(column[1])]
        text = text.replace(column[0], f"column {name!r}: ")
        hint = f" (types are inferred from the first rows: give types={{{name!r}: ...}})"
    if _NOT_UTF8 in text:
        hint = f"; {OTHER_ENCODING}"
    way_out = f" ({WAY_OUT})" if row or column else ""
    return f"{where}: {text}{hint}{way_out}"


_INTEGER = r"^\s*[+-]?[0-9]+\s*$"
#: From this number on, a double cannot represent all integers.
_EXACT = float(1 << 53)


def integer_type(texts: pa.Array) -> pa.DataType | None:
    """Return uint64, or text, as the type that keeps all digits of integers.

    Return None if a double is the right type.
    """
    if not pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():
        return None
    digits = pc.utf8_trim_whitespace(texts)
    if not rounded(digits.cast(pa.float64())):
        return None
    try:
        digits.cast(pa.uint64())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.uint64()


def rounded(numbers: pa.Array) -> bool:
    """Return whether some of the doubles are so large that digits may be lost."""
    return bool(pc.any(pc.greater_equal(pc.abs(numbers), _EXACT)).as_py())
