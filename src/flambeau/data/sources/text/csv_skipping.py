"""Good rows of CSV text, when bad rows are skipped.

Arrow's parser only reports that a block is bad, so a bad block is halved until the bad part is one
line. This costs nothing without bad rows, and a few small parses for each bad row.
"""

from collections.abc import Callable

import pyarrow as pa

from flambeau.data.sources.text.csv_lines import ends_in_quotes, rows_in


def good_rows(
    block: bytes, parse: Callable[[bytes], pa.Table], delimiter: str
) -> tuple[list[pa.Table], int]:
    """Return the good rows of some lines, in order, and the number of others."""
    if not rows_in(block):
        return [], 0
    found = _parsed(block, parse, delimiter)
    if found is not None:
        return [found], 0
    middle = block.rfind(b"\n", 0, len(block) // 2) + 1 or block.find(b"\n") + 1
    if middle in (0, len(block)):
        return [], 1
    first, skipped = good_rows(block[:middle], parse, delimiter)
    second, more = good_rows(block[middle:], parse, delimiter)
    return first + second, skipped + more


def _parsed(block: bytes, parse: Callable[[bytes], pa.Table], delimiter: str) -> pa.Table | None:
    """Return the rows if each line is a good one, else None."""
    try:
        table = parse(block)
    except pa.ArrowInvalid:
        return None
    last = block.rstrip(b"\r\n").rpartition(b"\n")[2]
    open_quote = b'"' in block and ends_in_quotes(last, delimiter)
    return None if open_quote or table.num_rows != rows_in(block) else table
