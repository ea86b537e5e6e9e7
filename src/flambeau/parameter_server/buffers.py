"""Received bytes as arrays, their lengths checked first. Nothing is copied."""

from typing import Any

import numpy as np

from flambeau.errors import ProtocolError
from flambeau.tables.index.ids import Ids

Array = np.ndarray[Any, Any]


def ids(buffer: Any, count: int) -> Ids:
    """`count` ids."""
    return numbers(buffer, count, np.dtype(np.int64))


def rows(buffer: Any, count: int, dim: int, dtype: np.dtype[Any]) -> Array:
    """`count` rows of `dim` numbers."""
    return numbers(buffer, count * dim, dtype).reshape(count, dim)


def numbers(buffer: Any, count: int, dtype: np.dtype[Any]) -> Array:
    """`count` numbers, as an array that may be written to."""
    size = memoryview(buffer).nbytes
    if count < 0 or size != count * dtype.itemsize:
        raise ProtocolError(f"a buffer of {size} bytes for {count} numbers of {dtype.itemsize}")
    array = np.frombuffer(buffer, dtype)
    return array if array.flags.writeable else array.copy()
