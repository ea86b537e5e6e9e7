"""Lines of text files in blocks of bounded size: cut into ranges, read, and found for messages."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from flambeau.data.sources import files
from flambeau.data.sources.paths import reading
from flambeau.data.sources.urls import shown
from flambeau.errors import DataError

#: Number of bytes that are read and parsed at a time; a longer line makes its block longer.
BLOCK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20
_LOOK_BYTES = 64 << 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_END = ord("\n")

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class LineRange:
    """Whole lines: bytes `start` to `stop` (None: the end) of a file, after decompression."""

    path: str
    start: int
    stop: int | None


@dataclass(frozen=True)
class Block:
    """Whole lines, and the position of their first byte in the (decompressed) file."""

    position: int
    data: Bytes


def line_ranges(path: str, size: int) -> list[LineRange]:
    """Return ranges of about `size` bytes, cut at line ends; one for a compressed file."""
    if files.compression_of(path) is not None:
        return [LineRange(path, 0, None)]
    with reading(path, "text"):
        end, ranges, start = files.size_of(path), [], 0
        while start < end:
            stop = _after_line(path, min(start + size, end) - 1, end)
            ranges.append(LineRange(path, start, stop))
            start = stop
    return ranges


def blocks(lines: LineRange) -> Iterator[Block]:
    """Yield blocks of lines, in order, which together contain every line once."""
    with reading(lines.path, "text"):
        found = _packed(lines) if lines.stop is None else _plain(lines, lines.stop)
        for block in found:
            yield _without_mark(block)


def line_number(path: str, position: int) -> int:
    """Return the number, from 1, of the line with the given byte of the (decompressed) file."""
    with reading(path, "text"):
        stream, line = files.open_stream(path), 1
        while position > 0 and (data := stream.read(min(BLOCK_BYTES, position))):
            line += data.count(b"\n")
            position -= len(data)
    return line


def _after_line(path: str, position: int, end: int) -> int:
    """Return the end of the line with the byte at `position`."""
    while position < end:
        found = bytes(files.read_bytes(path, position, min(position + _LOOK_BYTES, end)))
        if b"\n" in found:
            return position + found.index(b"\n") + 1
        position += max(len(found), 1)
    return end


def _plain(lines: LineRange, stop: int) -> Iterator[Block]:
    position, size = lines.start, BLOCK_BYTES
    while position < stop:
        last = min(position + size, stop)
        data = np.frombuffer(files.read_bytes(lines.path, position, last), np.uint8)
        length = len(data) if last == stop else _whole_lines(data)
        if not length:
            size = _longer(size, lines.path, position)
            continue
        yield Block(position, data[:length])
        position, size = position + length, BLOCK_BYTES


def _packed(lines: LineRange) -> Iterator[Block]:
    path, position, rest = lines.path, lines.start, b""
    stream = files.open_stream(path, position)
    while data := stream.read(BLOCK_BYTES):
        rest += data
        length = _whole_lines(np.frombuffer(rest, np.uint8))
        if length:
            yield Block(position, np.frombuffer(rest, np.uint8, length))
            position, rest = position + length, rest[length:]
        else:
            _longer(len(rest), path, position)
    if rest:
        yield Block(position, np.frombuffer(rest, np.uint8))


def _longer(size: int, path: str, position: int) -> int:
    if size >= LONGEST_LINE:
        line = line_number(path, position)
        raise DataError(
            f"{shown(path)} line {line} is longer than {LONGEST_LINE >> 20} MB: is this text?"
        )
    return 2 * size


def _whole_lines(data: Bytes) -> int:
    """Return the number of bytes up to the last line end."""
    stop = len(data)
    while stop > 0:
        start = max(0, stop - _LOOK_BYTES)
        ends = np.flatnonzero(data[start:stop] == _END)
        if len(ends):
            return start + int(ends[-1]) + 1
        stop = start
    return 0


def _without_mark(block: Block) -> Block:
    # Kernels are compiled for read-only data.
    block.data.flags.writeable = False
    mark = len(_BYTE_ORDER_MARK)
    if block.position or block.data[:mark].tobytes() != _BYTE_ORDER_MARK:
        return block
    return Block(mark, block.data[mark:])


@final
class RowMarks:
    """First rows of blocks of lines, with the byte of the (decompressed) file where they start."""

    def __init__(self) -> None:
        self._rows, self._bytes = array("q"), array("q")

    def add(self, row: int, position: int) -> None:
        """Add a mark; marks must be added in order."""
        self._rows.append(row)
        self._bytes.append(position)

    def before(self, row: int) -> tuple[int, int]:
        """Return the row and the byte of the last mark that is not after `row`."""
        last = bisect_right(self._rows, row) - 1
        return self._rows[last], self._bytes[last]
