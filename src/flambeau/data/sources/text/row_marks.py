"""Where to start reading for a row of a file of lines."""

from array import array
from bisect import bisect_right
from typing import final


@final
class RowMarks:
    """The first rows of blocks of lines, and at which byte of the (unpacked) file they start."""

    def __init__(self) -> None:
        self._rows, self._bytes = array("q"), array("q")

    def add(self, row: int, position: int) -> None:
        """Add a mark; marks come in order."""
        self._rows.append(row)
        self._bytes.append(position)

    def before(self, row: int) -> tuple[int, int]:
        """Return the row and the byte of the last mark that is not after `row`."""
        last = bisect_right(self._rows, row) - 1
        return self._rows[last], self._bytes[last]
