"""Lines of CSV files: counted, cut into ranges, and located for messages.

A row is a line that is not blank, as in Arrow's parser. Values that contain line ends are not
supported: a byte range could not be parsed without everything before it.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from flambeau.data.sources.files import compression_of, open_lines, size_of
from flambeau.data.sources.text.text_lines import RowMarks
from flambeau.data.sources.urls import shown
from flambeau.errors import DataError

_BLOCK = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def header_line(path: str) -> tuple[bytes, int]:
    """Return the first line that is not blank, and the offset of the next line."""
    with open_lines(path) as file:
        line = file.readline()
        end = len(line)
        while line and not line.removeprefix(_BYTE_ORDER_MARK).strip(b"\r\n"):
            line = file.readline()
            end += len(line)
        return line.removeprefix(_BYTE_ORDER_MARK), end


def line_ranges(path: str, start: int, size: int) -> list[tuple[int, int]]:
    """Return byte ranges of about `size` from `start` to the end of a file, cut at line ends."""
    end = size_of(path)
    bounds = [start]
    with open_lines(path) as file:
        while bounds[-1] < end:
            file.seek(bounds[-1] + size - 1)
            file.readline()
            bounds.append(min(file.tell(), end))
    return list(itertools.pairwise(bounds))


@dataclass(frozen=True)
class Counted:
    """Number of lines that are not blank, whether there are quotes in them, and the last line."""

    rows: int
    quoted: bool
    last: bytes
    marks: RowMarks


def count_rows(stream: pa.NativeFile, path: str, start: int) -> Counted:
    """Count the lines of the stream, which begins at byte `start` of the file.

    `path` is for messages.
    """
    rows, quoted, last, marks = 0, False, b"", RowMarks()
    for block in blocks(stream):
        if block.count(b"\r") != block.count(b"\r\n"):
            raise DataError(
                f"{shown(path)} has carriage returns inside of lines: end lines with \\n"
            )
        marks.add(rows, start)
        start += len(block)
        rows += rows_in(block)
        quoted = quoted or b'"' in block
        last = block.rstrip(b"\r\n").rpartition(b"\n")[2] or last
    return Counted(rows, quoted, last, marks)


def line_of_row(path: str, start: int, row: int) -> int:
    """Return the number, from 1, of the line with the `row`-th row (from 1) after byte `start`."""
    with open_lines(path) as file:
        line = _newlines(file, start)
        for text in file:
            line += 1
            row -= bool(text.strip(b"\r\n"))
            if row == 0:
                break
        return line


def undecodable_line(
    path: str, start: int, stop: int | None, encoding: str
) -> tuple[int, UnicodeDecodeError] | None:
    """Return the number, from 1, of the first line from byte `start` that cannot be decoded."""
    with open_lines(path) as file:
        before = _newlines(file, start)
        for number, line in enumerate(_lines(file, start, stop), before + 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as error:
                return number, error
    return None


def first_open_quote(path: str, start: int, stop: int | None, delimiter: str) -> int | None:
    """Return the first row, from 1 after byte `start`, that ends inside a quoted value, or None."""
    with open_lines(path) as file:
        if compression_of(path) is None:
            file.seek(start)
        else:
            file.read(start)
        rows = filter(None, (line.strip(b"\r\n") for line in _lines(file, start, stop)))
        open_rows = (row for row, text in enumerate(rows, 1) if ends_in_quotes(text, delimiter))
        return next(open_rows, None)


def ends_in_quotes(line: bytes, delimiter: str) -> bool:
    """Return whether a value that starts with a quote is not closed in this line."""
    return _closed_row(delimiter.encode()).fullmatch(line) is None


@functools.cache
def _closed_row(delimiter: bytes) -> re.Pattern[bytes]:
    other = b"[^" + re.escape(delimiter) + b"]*"
    field = b'(?:"(?:[^"]|"")*"(?!")' + other + b'|(?!")' + other + b")"
    return re.compile(field + b"(?:" + re.escape(delimiter) + field + b")*")


def _lines(file: IO[bytes], start: int, stop: int | None) -> Iterator[bytes]:
    for line in file:
        start += len(line)
        yield line
        if stop is not None and start >= stop:
            return


def _newlines(file: IO[bytes], size: int) -> int:
    """Return the number of line ends in the next `size` bytes."""
    counts = (file.read(min(_BLOCK, size - at)).count(b"\n") for at in range(0, size, _BLOCK))
    return sum(counts)


def blocks(stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield the bytes of the stream in blocks that end with a line."""
    rest = b""
    while data := stream.read(_BLOCK):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
        rest = data[cut:] if cut else rest + data
    if rest:
        yield rest


def rows_in(block: bytes) -> int:
    """Return the number of lines that are not blank."""
    characters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    blank = (lengths == 0) | ((lengths == 1) & (characters[starts] == ord("\r")))
    return len(ends) - int(blank.sum())
