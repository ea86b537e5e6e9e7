"""Numeric arrays in the files of MATLAB 5 to 7.2 (`save -v6`, `save -v7`).

The format is "MAT-File Level 5": a header of 128 bytes, then elements, each a tag (type and size)
and its bytes, padded to 8. An array is an element of elements: flags, dimensions, name, numbers.
Nothing in such a file is executed, and no array is held in memory: plain ones are mapped where
they are, compressed ones are decompressed into a file without a name, which is mapped.
"""

import math
import mmap
import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from flambeau.config.plural import number_of
from flambeau.data.sources.mapping import map_descriptor, map_file
from flambeau.data.sources.paths import require_content
from flambeau.errors import DataError

_HEADER = 128
_TAG = 8
#: Bytes that may stand behind an array's numbers; elements are padded to 8.
_PADDING = 8
_ARRAY, _COMPRESSED = 14, 15
_TYPES = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7, 9, 12, 13),
        ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8"),
        strict=True,
    )
)
#: Kinds of arrays whose elements are numbers: double, single and all integers.
_NUMERIC = range(6, 16)
_COMPLEX = 0x0800
#: Bytes in which flags, dimensions and name of an array are found.
_DESCRIPTION = 4096
_PIECE = 1 << 20


@final
@dataclass(frozen=True)
class _Place:
    """Description of an array: where its numbers are in the element that holds it."""

    name: str
    numeric: bool
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    start: int
    bytes: int


def read_matlab(path: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the arrays `names` of the file: read-only, mapped, in MATLAB's order of axes.

    Raise `DataError` if the file is damaged, of another version, or lacks one of them.
    """
    require_content(path)
    memory = map_file(path)
    order = _byte_order(memory, path)
    found: dict[str, np.ndarray] = {}
    others = []
    try:
        for element, place in _arrays(memory, order):
            if place.name not in names:
                others.append(place.name)
                continue
            found[place.name] = _numbers(element, place)
    except (_DamageError, struct.error, zlib.error) as error:
        raise DataError(f"{path} is damaged or truncated: {error}; copy it again") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"{path} has no {'array' if len(missing) == 1 else 'arrays'} {', '.join(missing)}; it "
            f"has {', '.join([*found, *others]) or 'none'}"
        )
    return found


class _DamageError(ValueError):
    """Contents that contradict themselves."""


def _byte_order(memory: mmap.mmap, path: str) -> str:
    """Return "<" or ">", of a file whose version can be read."""
    start = memory[:_HEADER]
    if start.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in memory[:1024]:
        raise DataError(
            f"{path} is of MATLAB 7.3 (HDF5), which is not read. Write it again in MATLAB with "
            "save('-v7'), or with scipy.io.savemat"
        )
    orders = {b"IM": "<", b"MI": ">"}
    if len(start) < _HEADER or start[126:128] not in orders:
        raise DataError(f"{path} is not a MATLAB file of versions 5 to 7.2: its header is unknown")
    return orders[start[126:128]]


def _arrays(memory: mmap.mmap, order: str) -> Iterator[tuple["_Element", _Place]]:
    at = _HEADER
    while at < len(memory):
        kind, size = struct.unpack_from(f"{order}II", memory, at)
        at += _TAG
        if at + size > len(memory):
            raise _DamageError(f"it has {len(memory)} bytes, and an array that ends at {at + size}")
        element = _Element(memory, at, size, packed=kind == _COMPRESSED)
        if kind in (_ARRAY, _COMPRESSED):
            yield element, _described(element.beginning(), order)
        at += size


@final
class _Element:
    """An array as it is stored, plain or compressed."""

    def __init__(self, memory: mmap.mmap, at: int, size: int, *, packed: bool) -> None:
        self._memory, self._at, self._size, self._packed = memory, at, size, packed

    def beginning(self) -> bytes:
        """Return the bytes that describe the array, without its tag."""
        if not self._packed:
            return self._memory[self._at : self._at + min(self._size, _DESCRIPTION)]
        piece = self._memory[self._at : self._at + min(self._size, _DESCRIPTION)]
        return zlib.decompressobj().decompress(piece, _TAG + _DESCRIPTION)[_TAG:]

    def mapped(self, stop: int) -> tuple[mmap.mmap, int]:
        """Return memory with the array up to byte `stop`, and where the array begins in it."""
        if not self._packed:
            if stop > self._size:
                raise _DamageError(f"an array of {stop} bytes is in an element of {self._size}")
            return self._memory, self._at
        with tempfile.TemporaryFile() as plain:
            for piece in self._decompressed(_TAG + stop):
                plain.write(piece)
            plain.flush()
            if plain.tell() < _TAG + stop:
                raise _DamageError(f"{_TAG + stop - plain.tell()} bytes of an array are missing")
            return map_descriptor(plain.fileno()), _TAG

    def _decompressed(self, most: int) -> Iterator[bytes]:
        """Yield `most` bytes and their padding, with a verified checksum."""
        unpacker, end, left = zlib.decompressobj(), self._at + self._size, most + _PADDING
        for at in range(self._at, end, _PIECE):
            waiting, limit, piece = self._memory[at : min(at + _PIECE, end)], 0, b""
            while len(piece) == limit and left > 0:
                limit = min(_PIECE, left)
                piece = unpacker.decompress(waiting, limit)
                waiting, left = unpacker.unconsumed_tail, left - len(piece)
                yield piece
        if not unpacker.eof:
            raise _DamageError("a compressed array does not end where it should")


def _described(data: bytes, order: str) -> _Place:
    flags, at = _part(data, 0, order)
    shape, at = _part(data, at, order)
    name, at = _part(data, at, order)
    if len(flags) != 8 or not shape or len(shape) % 4:
        raise _DamageError("an array has no dimensions")
    (kind,) = struct.unpack_from(f"{order}I", flags)
    dimensions = tuple(np.frombuffer(shape, f"{order}i4").tolist())
    if min(dimensions) < 0:
        raise _DamageError(f"an array has dimensions {dimensions}")
    numeric = (kind & 0xFF) in _NUMERIC and not kind & _COMPLEX
    label = name.decode("latin-1")
    if not numeric:
        return _Place(label, False, dimensions, np.dtype("u1"), at, 0)
    stored, start, size = _tag(data, at, order)
    if stored not in _TYPES:
        raise _DamageError(f"array {label} has numbers of the unknown type {stored}")
    return _Place(label, True, dimensions, np.dtype(order + _TYPES[stored]), start, size)


def _part(data: bytes, at: int, order: str) -> tuple[bytes, int]:
    """Return the bytes of a small element, and where the next one begins."""
    _, start, size = _tag(data, at, order)
    if start + size > len(data):
        raise _DamageError("the description of an array has no end")
    inside_tag = start == at + 4
    return data[start : start + size], at + _TAG if inside_tag else start + -(-size // 8) * 8


def _tag(data: bytes, at: int, order: str) -> tuple[int, int, int]:
    """Return type, first byte and size of an element; up to 4 bytes are inside of its tag."""
    kind, size = struct.unpack_from(f"{order}II", data, at)
    return (kind & 0xFFFF, at + 4, kind >> 16) if kind >> 16 else (kind, at + _TAG, size)


def _numbers(element: _Element, place: _Place) -> np.ndarray:
    if not place.numeric:
        raise _DamageError(f"{place.name} is not an array of numbers")
    count = math.prod(place.shape)
    if place.bytes != count * place.dtype.itemsize:
        raise _DamageError(
            f"array {place.name} of {number_of(count, 'number')} has {place.bytes} bytes"
        )
    if count == 0:
        return np.empty(place.shape, place.dtype)
    memory, base = element.mapped(place.start + place.bytes)
    numbers = np.frombuffer(memory, place.dtype, count, base + place.start)
    return numbers.reshape(place.shape, order="F")
