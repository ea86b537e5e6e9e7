"""64-bit ids of texts and of combinations of columns, the same in every run and on every machine.

Hashes are salted, so that equal texts of different columns have different ids. The probability that
any two of a hundred million different texts share an id is 1 in 3,700.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flambeau.kernels.compiled import inlined, kernel
from flambeau.kernels.mixing import mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_EIGHT = np.uint64(8)

Array = np.ndarray[Any, Any]


@inlined
def word_at(data: Any, position: Any) -> Any:
    """Return eight bytes as one little-endian number; compiled to a single load."""
    word = np.uint64(0)
    for k in range(8):
        word |= np.uint64(data[np.uint64(position + k)]) << np.uint64(8 * k)
    return word


@inlined
def hash_bytes(data: Any, start: Any, stop: Any, salt: Any) -> Any:
    """Return a 64-bit hash of the bytes from `start` to `stop`, computed eight bytes at a time."""
    state = salt ^ (np.uint64(stop - start) * _GOLDEN)
    position = start
    while position + 8 <= stop:
        state = mix(state ^ word_at(data, position)) + _GOLDEN
        position += 8
    word = np.uint64(0)
    shift = np.uint64(0)
    while position < stop:
        word |= np.uint64(data[np.uint64(position)]) << shift
        shift += _EIGHT
        position += 1
    return np.int64(mix(state ^ word))


@kernel
def _hash_all(data: Any, offsets: Any, salt: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = hash_bytes(data, offsets[i], offsets[i + 1], salt)


@kernel
def _hash_blocks(data: Any, offsets: Any, salts: Any, out: Any) -> None:
    """Hash the texts of several columns, one column after the other, to `out` [columns, rows]."""
    for column in range(out.shape[0]):
        first = column * out.shape[1]
        for row in range(out.shape[1]):
            begin, end = offsets[first + row], offsets[first + row + 1]
            out[column, row] = hash_bytes(data, begin, end, salts[column])


@kernel
def _combine(ids: Any, salt: Any, out: Any) -> None:
    """Return one id for each row of `ids` [rows, columns], which depends on their order."""
    for i in range(out.size):
        state = salt
        for j in range(ids.shape[1]):
            state = mix(state ^ np.uint64(ids[i, j])) + _GOLDEN
        out[i] = np.int64(state)


def salt_of(name: str) -> np.uint64:
    """Return the salt that distinguishes the texts of one column from those of another."""
    encoded = name.encode()
    return np.uint64((zlib.crc32(encoded) << 32) | zlib.adler32(encoded))


def hash_texts(texts: pa.Array, salt: str) -> Array:
    """Return an int64 id for each text (string or binary). Missing texts count as empty."""
    characters, offsets = _bytes_of(texts)
    out = np.empty(len(texts), np.int64)
    _hash_all(characters, offsets, salt_of(salt), out)
    return out


def hash_columns(texts: pa.Array, salts: Array) -> Array:
    """Return ids [columns, rows] of the texts of several columns, stored one after the other.

    `salts` (uint64) has that of each column. This is one call of a kernel, for blocks of few rows.
    """
    characters, offsets = _bytes_of(texts)
    out = np.empty((len(salts), len(texts) // len(salts)), np.int64)
    _hash_blocks(characters, offsets, salts, out)
    return out


def _bytes_of(texts: pa.Array) -> tuple[Array, Array]:
    """Return the bytes of all texts, and the offset of each text and of the end."""
    wide = texts.cast(pa.large_binary())
    _, bounds, data = wide.buffers()
    offsets = np.frombuffer(bounds, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), offsets


def combine(columns: Sequence[Array], salt: str) -> Array:
    """Return one int64 id for each row of several columns of ids: a crossed column."""
    ids = np.ascontiguousarray(np.stack(columns, axis=1))
    out = np.empty(len(ids), np.int64)
    _combine(ids, salt_of(salt), out)
    return out
