"""A bit set with one bit per row of a table."""

from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import kernel
from flambeau.tables.index.index import Rows

Words = np.ndarray[Any, np.dtype[np.uint64]]

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)

_TWO, _FOUR, _LAST = np.uint64(2), np.uint64(4), np.uint64(56)
_PAIRS = np.uint64(0x5555555555555555)
_FOURS = np.uint64(0x3333333333333333)
_EIGHTS = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


@final
class RowBits:
    """Bits of rows 0 to 64 `words.size` - 1, all unset at first."""

    def __init__(self, rows: int = 0) -> None:
        self.words = np.zeros(-(-rows // 64), np.uint64)

    def inverted(self) -> "RowBits":
        """Return a copy with every bit inverted."""
        other = RowBits()
        other.words = ~self.words
        return other

    def cover(self, rows: int) -> None:
        """Grow to have a bit for rows 0 to `rows` - 1."""
        if rows > self.words.size * 64:
            grown = np.zeros(max(-(-rows // 64), 2 * self.words.size), np.uint64)
            grown[: self.words.size] = self.words
            self.words = grown

    def claim(self, rows: Rows) -> Rows:
        """Set bits; return the positions in `rows` of those that were unset.

        A row without a bit counts as set.
        """
        out = np.empty(rows.size, np.int64)
        return out[: _claim(rows, self.words, out)]

    def clear(self, rows: Rows) -> None:
        """Unset the bits of `rows`."""
        _clear(rows, self.words)

    def count(self) -> int:
        """Return the number of set bits."""
        return int(_count(self.words))

    def add(self, other: "RowBits") -> None:
        """Set every bit that is set in `other`, growing if necessary."""
        self.cover(other.words.size * 64)
        self.words[: other.words.size] |= other.words


@kernel
def _claim(rows: Any, words: Any, out: Any) -> int:
    count = 0
    for i in range(rows.size):
        row = np.uint64(rows[i])
        word = row >> _SIX
        if word < words.size:
            bit = _ONE << (row & _LOW)
            if not words[word] & bit:
                words[word] |= bit
                out[count] = i
                count += 1
    return count


@kernel
def _clear(rows: Any, words: Any) -> None:
    for i in range(rows.size):
        row = np.uint64(rows[i])
        if row >> _SIX < words.size:
            words[row >> _SIX] &= ~(_ONE << (row & _LOW))


@kernel
def _count(words: Any) -> Any:
    """Count the set bits of each word in parallel: in pairs, then in groups of four and eight."""
    total = 0
    for i in range(words.size):
        left = words[i]
        left -= (left >> _ONE) & _PAIRS
        left = (left & _FOURS) + ((left >> _TWO) & _FOURS)
        left = (left + (left >> _FOUR)) & _EIGHTS
        total += int((left * _BYTES) >> _LAST)
    return total
