"""A digest of a fitted pipeline, computed piece by piece: its tables may be larger than memory."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flambeau.data.arrow_columns import is_text
from flambeau.features.keys import is_list, keys_of
from flambeau.features.operation import Operation, State
from flambeau.features.stored_state import batches_of, schema_of

#: A function that returns the values of a column in order, in pieces; each call starts over.
Column = Callable[[], Iterable[pa.Array]]


def digest_of(operations: Sequence[Operation], states: Sequence[State]) -> str:
    """Return a digest of operations and their fitted states."""
    digest = hashlib.sha256(json.dumps([each.dump() for each in operations]).encode())
    for state in states:
        for name in sorted(state):
            for field in schema_of(state, name):
                digest.update(f"{name}:{field.name}".encode())
                _add(_column(state, name, field.name), field.type, digest)
    return digest.hexdigest()[:32]


def _column(state: State, table: str, name: str) -> Column:
    return lambda: (batch.column(0) for batch in batches_of(state, table, [name]))


def _add(column: Column, kind: pa.DataType, digest: "hashlib._Hash") -> None:
    """Add values to a digest, independent of how Arrow stores and chunks them."""
    plain = is_list(kind) or is_text(kind)
    digest.update(b"" if plain else str(kind).encode())
    _add_bits((each.is_null() for each in column()), digest)
    if is_list(kind):
        for values in column():
            digest.update(_bytes(values.value_lengths().fill_null(0)))
        _add(lambda: (each.flatten() for each in column()), kind.value_type, digest)
    elif is_text(kind):
        for values in column():
            digest.update(np.diff(_offsets(_texts(values))).tobytes())
        for values in column():
            _add_texts(_texts(values), digest)
    elif pa.types.is_nested(kind):
        digest.update(repr([row for each in column() for row in each.to_pylist()]).encode())
    else:
        for values in column():
            digest.update(keys_of(values).tobytes())


def _add_bits(flags: Iterable[pa.Array], digest: "hashlib._Hash") -> None:
    """Add booleans, eight to a byte."""
    left = np.zeros(0, np.bool_)
    for each in flags:
        bits = np.concatenate([left, each.to_numpy(zero_copy_only=False)])
        whole = len(bits) // 8 * 8
        digest.update(np.packbits(bits[:whole]).tobytes())
        left = bits[whole:]
    digest.update(np.packbits(left).tobytes())


def _bytes(numbers: pa.Array) -> bytes:
    return bytes(numbers.to_numpy(zero_copy_only=False).tobytes())


def _texts(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary()).fill_null(b"")


def _offsets(texts: pa.Array) -> "np.ndarray[Any, Any]":
    bounds = texts.buffers()[1]
    if bounds is None or not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _add_texts(texts: pa.Array, digest: "hashlib._Hash") -> None:
    offsets, data = _offsets(texts), texts.buffers()[2]
    if data is not None and len(texts):
        digest.update(data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
