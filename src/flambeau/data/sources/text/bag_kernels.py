"""Compiled kernels for rows of a label and a bag of ids (libsvm, libffm, dummy)."""

from typing import Any

import numpy as np

from flambeau.data.sources.text.number_kernels import (
    MINUS,
    byte,
    end_of_line,
    is_blank,
    is_skipped,
    parse_float,
    parse_id,
    without_return,
)
from flambeau.data.sources.text.row_faults import (
    BELOW_FIRST_ID,
    EXTRA_COLON,
    FINE,
    LABELS_DIFFER,
    LABELS_JOINED,
    NEGATIVE_ID,
    NO_COLON,
    NO_LABEL,
    NO_NUMBER,
    QUERY,
    TOO_LARGE,
)
from flambeau.kernels.compiled import inlined, kernel

COLON, COMMA, HASH, LETTER_Q = ord(":"), ord(","), ord("#"), ord("q")


@kernel
def parse_bags(
    data: Any,
    parts: int,
    comment: int,
    first_id: int,
    skip: bool,
    labels: Any,
    offsets: Any,
    ids: Any,
    values: Any,
    fields: Any,
) -> tuple[int, int, int, int, int, int]:
    """Fill the arrays with rows; return the number of rows, of skipped rows, and a fault.

    Items have `parts` 1 (id), 2 (id:value) or 3 (field:id:value). `labels` is [labels, rows],
    `offsets` [rows + 1]. A fault is four numbers: its kind, its position, and the bounds of its
    line.
    """
    # Not a literal, for which numba would compile all functions called here a second time.
    zero: Any = np.int64(0)
    rows, items, skipped, position = zero, zero, zero, zero
    offsets[0] = 0
    while position < data.size:
        start = position
        end = end_of_line(data, start)
        position = end + 1
        if is_skipped(data, start, end, comment, True):
            continue
        stop = without_return(data, start, end)
        at, wrong = _labels(data, start, stop, labels, rows)
        after = items
        if wrong == FINE:
            at, after, wrong = _items(
                data, at, stop, parts, comment, first_id, ids, values, fields, items
            )
        if wrong == FINE:
            items = after
            rows += 1
            offsets[rows] = items
        elif skip:
            skipped += 1
        else:
            return rows, skipped, wrong, at, start, stop
    return rows, skipped, FINE, 0, 0, 0


@kernel
def _labels(data: Any, position: int, stop: int, labels: Any, row: int) -> tuple[int, int]:
    """Read labels joined with `#`; return where they end, and a fault."""
    count = labels.shape[0]
    position = _after_blanks(data, position, stop)
    for number in range(count):
        value, end, wrong = parse_float(data, position, stop)
        if wrong != FINE:
            return position, TOO_LARGE if wrong == TOO_LARGE else NO_LABEL
        labels[number, row] = value
        position = end
        if number + 1 < count:
            if position == stop or byte(data, position) != HASH:
                return position, LABELS_DIFFER
            position += 1
    if position < stop and byte(data, position) == HASH:
        return position, LABELS_JOINED if count == 1 else LABELS_DIFFER
    return position, FINE


@kernel
def _items(
    data: Any,
    position: int,
    stop: int,
    parts: int,
    comment: int,
    first_id: int,
    ids: Any,
    values: Any,
    fields: Any,
    items: int,
) -> tuple[int, int, int]:
    """Read the items of a row from number `items` on; return the end, their number and a fault."""
    while True:
        start, more = _next_item(data, position, stop, parts)
        if start == stop and not more:
            return stop, items, FINE
        if start == position:
            return start, items, EXTRA_COLON if byte(data, start) == COLON else NO_NUMBER
        if start < stop and byte(data, start) == comment:
            return stop, items, FINE
        number, position, wrong = parse_id(data, start, stop)
        if wrong == FINE and parts == 3:
            fields[items] = number
            position = _after_colon(data, position, stop)
            if position < 0:
                return start, items, NO_COLON
            number, position, wrong = parse_id(data, position, stop)
        if wrong != FINE:
            return start, items, _why_no_id(data, start, stop, parts, wrong)
        if number < first_id:
            return start, items, BELOW_FIRST_ID
        ids[items] = number - first_id
        if parts > 1:
            position = _after_colon(data, position, stop)
            if position < 0:
                return start, items, NO_COLON
            value, position, wrong = parse_float(data, position, stop)
            if wrong != FINE:
                return start, items, wrong
            values[items] = value
        items += 1


@inlined
def _after_blanks(data: Any, position: Any, stop: Any) -> Any:
    while position < stop and is_blank(byte(data, position)):
        position += 1
    return position


@kernel
def _next_item(data: Any, position: int, stop: int, parts: int) -> tuple[int, bool]:
    """Return where the next item starts, and whether there must be one."""
    start = _after_blanks(data, position, stop)
    if parts == 1 and start < stop and byte(data, start) == COMMA:
        return _after_blanks(data, start + 1, stop), True
    return start, False


@inlined
def _after_colon(data: Any, position: Any, stop: Any) -> Any:
    """Return the position after a colon, or -1 if there is no colon."""
    if position < stop and byte(data, position) == COLON:
        return position + 1
    return -1


@kernel
def _why_no_id(data: Any, start: int, stop: int, parts: int, wrong: int) -> int:
    """Return the fault of an item that does not begin with an id."""
    if wrong != NO_NUMBER or start == stop:
        return wrong
    if byte(data, start) == LETTER_Q and parts == 2:
        return QUERY
    for position in range(start, stop):
        if is_blank(byte(data, position)):
            break
        follows = position == start or byte(data, position - 1) == COLON
        if byte(data, position) == MINUS and follows:
            return NEGATIVE_ID
    return wrong
