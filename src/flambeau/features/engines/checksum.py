"""A checksum of rows that does not depend on their order, to detect changed data."""

from typing import Any

import numpy as np
import pyarrow as pa

from flambeau.features.keys import is_list, keys_of

Words = np.ndarray[Any, np.dtype[np.uint64]]

_NULL = np.uint64(0x5C1F3A9D27E846B1)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def checksum(records: pa.RecordBatch) -> int:
    """Return the sum of the hashes of all rows, modulo 2^64."""
    return int(_rows(records.columns, records.num_rows).sum(dtype=np.uint64))


def _rows(columns: list[pa.Array], rows: int) -> Words:
    """Return a hash of each row over several columns; the order of columns matters."""
    found = np.zeros(rows, np.uint64)
    for number, column in enumerate(columns):
        found = _mixed(found ^ _mixed(_values(column) + np.uint64(number)))
    return found


def _values(column: pa.Array) -> Words:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _values(column.storage)
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if is_list(kind):
        found = _lists(column)
    elif pa.types.is_struct(kind):
        found = _rows(column.flatten(), len(column))
    else:
        found = _plain(column)
    found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _lists(column: pa.Array) -> Words:
    """Return a hash of each list: a sum over its items, each hashed with its position."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    items = _values(column.flatten())
    places = np.arange(len(items), dtype=np.int64) - np.repeat(ends - lengths, lengths)
    hashes = _mixed(items ^ _mixed(_words(places)))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    found: Words = sums[ends] - sums[ends - lengths] + _words(lengths)
    return found


def _plain(column: pa.Array) -> Words:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.uint64)
    try:
        return _words(keys_of(column))
    except TypeError:  # decimals, maps and other rare types
        texts = pa.array([repr(value) for value in column.to_pylist()], pa.string())
        return _words(keys_of(texts))


def _words(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> Words:
    return np.array(numbers, np.int64).view(np.uint64)


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
