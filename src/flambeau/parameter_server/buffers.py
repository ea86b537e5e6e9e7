"""Received bytes as arrays, after a check of their lengths."""

from typing import Any

import numpy as np

from flambeau.errors import ProtocolError
from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]


def ids(buffer: Any, count: int) -> Ids:
    """Return `count` ids from a buffer; raise `ProtocolError` for a buffer of another size."""
    return numbers(buffer, count, np.dtype(np.int64))


def rows(buffer: Any, count: int, dim: int, dtype: np.dtype[Any]) -> Array:
    """Return `count` rows of `dim` numbers; raise `ProtocolError` for a buffer of another size."""
    return numbers(buffer, count * dim, dtype).reshape(count, dim)


def numbers(buffer: Any, count: int, dtype: np.dtype[Any]) -> Array:
    """Return `count` numbers as a writable array, copied only from a read-only buffer.

    Raises `ProtocolError` for a buffer of another size.
    """
    size = memoryview(buffer).nbytes
    if count < 0 or size != count * dtype.itemsize:
        raise ProtocolError(f"a buffer of {size} bytes for {count} numbers of {dtype.itemsize}")
    array = np.frombuffer(buffer, dtype)
    return array if array.flags.writeable else array.copy()
