"""CRC-32 of a table file by block, and of the whole file combined from its blocks."""

import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

Sums = np.ndarray[Any, np.dtype[np.int64]]

#: Bytes of a tensor per checksum; the last block of a tensor may be shorter.
BLOCK = 1 << 16
#: The tensor that holds the checksums of a file: that of the header, then those of all blocks.
CHECKSUMS = "crc32"

_POLYNOMIAL = 0xEDB88320


def count_blocks(size: int) -> int:
    """Return how many blocks a tensor of `size` bytes has."""
    return -(-size // BLOCK)


def block_sums(data: memoryview) -> Sums:
    """Return the checksum of each block of `data`."""
    starts = range(0, len(data), BLOCK)
    return np.array([zlib.crc32(data[start : start + BLOCK]) for start in starts], np.int64)


def combined(parts: Iterable[tuple[int, int]]) -> int:
    """Return the checksum of concatenated parts, from the checksum and the length of each part."""
    whole = 0
    for checksum, length in parts:
        whole = _product(_power(length), whole) ^ checksum
    return whole


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32; their highest bit is the constant term."""
    product = 0
    while a:
        if a & 0x80000000:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@cache
def _power(length: int) -> int:
    """Return x to the power of 8 `length`, which shifts a checksum by `length` bytes."""
    result, square = 1 << 31, 1 << 23
    while length:
        if length & 1:
            result = _product(square, result)
        square, length = _product(square, square), length >> 1
    return result
