"""Compiled kernels for rows of labels, numbers and texts separated by tabs."""

from math import log1p
from typing import Any

import numpy as np

from flambeau.data.sources.text.number_kernels import (
    HIGH_BITS,
    TAB,
    byte,
    end_of_line,
    find,
    is_skipped,
    parse_float,
    without_return,
)
from flambeau.data.sources.text.row_faults import (
    COLUMNS_DIFFER,
    FINE,
    NO_LABEL,
    NO_NUMBER,
    NOT_UTF8,
)
from flambeau.data.text_hash import hash_bytes, word_at
from flambeau.kernels.compiled import inlined, kernel

#: Logarithms of the counts that are by far the most frequent.
_LOGARITHMS = np.log1p(np.arange(4096)).astype(np.float32)


@kernel
def parse_criteo(
    data: Any,
    skip: bool,
    logarithm: bool,
    hashes: bool,
    salts: Any,
    labels: Any,
    dense: Any,
    ids: Any,
    valid: Any,
) -> tuple[int, int, int, int, int, int]:
    """Fill the arrays with rows; return the number of rows, of skipped rows, and a fault.

    `labels`, `dense` and `ids` are [columns, rows]; `valid` [columns, rows / 8] must be zeros.
    Without `hashes`, ids are the positions of texts in the data: the start in the upper 32 bits,
    the end in the lower ones.
    """
    # Not a literal, for which numba would compile all functions called here a second time.
    zero: Any = np.int64(0)
    rows, skipped, position = zero, zero, zero
    while position < data.size:
        start = position
        end = end_of_line(data, start)
        position = end + 1
        if is_skipped(data, start, end, -1, False):
            continue
        stop = without_return(data, start, end)
        at, wrong = _labels(data, start, stop, labels, rows)
        if wrong == FINE:
            at, wrong = _numbers(data, at, stop, logarithm, dense, rows)
        if wrong == FINE:
            at, wrong = _texts(data, at, stop, hashes, salts, ids, valid, rows)
        if wrong == FINE and at <= stop:
            wrong = COLUMNS_DIFFER
        if wrong == FINE:
            rows += 1
            continue
        for column in range(ids.shape[0]):
            valid[column, rows >> 3] &= np.uint8(~(1 << (rows & 7)) & 0xFF)
        if not skip:
            return rows, skipped, wrong, at, start, stop
        skipped += 1
    return rows, skipped, FINE, 0, 0, 0


# Each function reads its columns from a position on and returns the position after the tab behind
# the last of them. If the row has ended, that is `stop` + 1, where the next column would begin.


@kernel
def _labels(data: Any, position: int, stop: int, labels: Any, row: int) -> tuple[int, int]:
    for column in range(labels.shape[0]):
        if position > stop:
            return stop, COLUMNS_DIFFER
        value, end, wrong = parse_float(data, position, stop)
        if wrong == NO_NUMBER:
            wrong = NO_LABEL
        if wrong == FINE and end < stop and byte(data, end) != TAB:
            wrong = NO_LABEL
        if wrong != FINE:
            return position, wrong
        labels[column, row] = value
        position = end + 1
    return position, FINE


@kernel
def _numbers(
    data: Any, position: int, stop: int, logarithm: bool, dense: Any, row: int
) -> tuple[int, int]:
    for column in range(dense.shape[0]):
        if position > stop:
            return stop, COLUMNS_DIFFER
        if position == stop or byte(data, position) == TAB:
            dense[column, row] = 0.0 if logarithm else np.nan
            position += 1
            continue
        value, end, wrong = parse_float(data, position, stop)
        if wrong == FINE and end < stop and byte(data, end) != TAB:
            wrong = NO_NUMBER
        if wrong != FINE:
            return position, wrong
        dense[column, row] = log_one_plus(value) if logarithm else value
        position = end + 1
    return position, FINE


@kernel
def _texts(
    data: Any,
    position: int,
    stop: int,
    hashes: bool,
    salts: Any,
    ids: Any,
    valid: Any,
    row: int,
) -> tuple[int, int]:
    for column in range(ids.shape[0]):
        if position > stop:
            return stop, COLUMNS_DIFFER
        end = find(data, position, stop, TAB)
        if not is_utf8(data, position, end):
            return position, NOT_UTF8
        if end > position:
            if hashes:
                ids[column, row] = hash_bytes(data, position, end, salts[column])
            else:
                ids[column, row] = (np.int64(position) << np.int64(32)) | np.int64(end)
            valid[column, row >> 3] |= np.uint8(1 << (row & 7))
        else:
            ids[column, row] = 0
        position = end + 1
    return position, FINE


@kernel
def text_bounds(spans: Any, bounds: Any) -> None:
    """Write the offset of each text, and of the end, for all texts joined."""
    total = np.int32(0)
    bounds[0] = total
    for i in range(spans.size):
        total += np.int32((spans[i] & np.int64(0xFFFFFFFF)) - (spans[i] >> np.int64(32)))
        bounds[i + 1] = total


@kernel
def copy_texts(data: Any, spans: Any, out: Any) -> None:
    """Join the texts at the given positions in the data."""
    place = 0
    for i in range(spans.size):
        for position in range(spans[i] >> np.int64(32), spans[i] & np.int64(0xFFFFFFFF)):
            out[place] = data[position]
            place += 1


@inlined
def log_one_plus(value: Any) -> Any:
    """Return log(1 + value), or 0 for a negative value."""
    whole = np.int64(min(max(value, 0.0), 4096.0))
    if whole < 4096 and (value == whole or value <= 0.0):
        return np.float32(_LOGARITHMS[whole])
    return np.float32(log1p(value))


@inlined
def is_utf8(data: Any, position: Any, stop: Any) -> Any:
    """Return whether the bytes are well-formed UTF-8."""
    while position + 8 <= stop and not word_at(data, position) & HIGH_BITS:
        position += 8
    while position < stop and byte(data, position) < 0x80:
        position += 1
    return position == stop or _is_long_utf8(data, position, stop)


@kernel
def _is_long_utf8(data: Any, position: int, stop: int) -> bool:
    while position < stop:
        lead = np.int64(byte(data, position))
        position += 1
        if lead < 0x80:
            continue
        more, least = 0, 0
        if 0xC2 <= lead < 0xE0:
            more, least, code = 1, 0x80, lead & 0x1F
        elif 0xE0 <= lead < 0xF0:
            more, least, code = 2, 0x800, lead & 0x0F
        elif 0xF0 <= lead < 0xF5:
            more, least, code = 3, 0x10000, lead & 0x07
        else:
            return False
        for _ in range(more):
            if position == stop or byte(data, position) & 0xC0 != 0x80:
                return False
            code = (code << 6) | np.int64(byte(data, position) & 0x3F)
            position += 1
        if code < least or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            return False
    return True
