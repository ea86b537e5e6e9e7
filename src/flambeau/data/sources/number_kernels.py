"""Numbers and lines in bytes of text, compiled."""

from typing import Any

import numpy as np

from flambeau.data.sources.row_faults import FINE, LONG_ID, NO_NUMBER, TOO_LARGE
from flambeau.kernels.compiled import inlined, kernel

ZERO, NINE = ord("0"), ord("9")
PLUS, MINUS, POINT = ord("+"), ord("-"), ord(".")
SMALL_E, LARGE_E = ord("e"), ord("E")
SPACE, TAB, RETURN, END = ord(" "), ord("\t"), ord("\r"), ord("\n")

#: More digits than these are left out: they do not change a float32.
_DIGITS = 18
_DIGITS_LIMIT = np.uint64(10 ** (_DIGITS - 1))
_TEN = np.uint64(10)
_LARGEST_ID = np.uint64((1 << 63) - 1)
#: Texts of so many digits or fewer are surely ids; longer ones of about this size are not.
_SURE_DIGITS, _ABOUT_LARGEST = 18, 9.3e18
#: What rounds to the largest float32 is below.
_FLOAT32_LIMIT = (2.0 - 2.0**-24) * 2.0**127
#: Beyond this power of ten, a mantissa of 18 digits is 0 or too large for a float32.
_POWER_LIMIT = 80
_POWERS = 10.0 ** np.arange(_POWER_LIMIT + 1)
_EXPONENT_LIMIT = 100_000


@inlined
def is_blank(character: Any) -> Any:
    """Whether it stands between the parts of a row."""
    return character in (SPACE, TAB)


@kernel
def end_of_line(data: Any, position: int) -> int:
    """Where the line ends: its line feed, or the end of the data."""
    while position < data.size and data[position] != END:
        position += 1
    return position


@kernel
def parse_id(data: Any, position: int, stop: int) -> tuple[Any, int, int]:
    """A number without a sign: the number, where its text ends, and what is wrong."""
    value, first = np.uint64(0), position
    while position < stop and ZERO <= data[position] <= NINE:
        value = value * _TEN + np.uint64(data[position] - ZERO)
        position += 1
    if position == first:
        return np.int64(0), position, NO_NUMBER
    if position - first > _SURE_DIGITS:
        about = 0.0
        for i in range(first, position):
            about = about * 10.0 + (data[i] - ZERO)
        if about > _ABOUT_LARGEST or value > _LARGEST_ID:
            return np.int64(0), position, LONG_ID
    return np.int64(value), position, FINE


@kernel
def parse_float(data: Any, position: int, stop: int) -> tuple[float, int, int]:
    """A decimal number: its value, right to a float32, where it ends, and what is wrong."""
    negative = position < stop and data[position] == MINUS
    if negative or (position < stop and data[position] == PLUS):
        position += 1
    mantissa, exponent, digits, after_point = np.uint64(0), 0, 0, False
    while position < stop:
        character = data[position]
        if ZERO <= character <= NINE:
            digits += 1
            if mantissa < _DIGITS_LIMIT:
                mantissa = mantissa * _TEN + np.uint64(character - ZERO)
                exponent -= after_point
            else:
                exponent += not after_point
        elif character == POINT and not after_point:
            after_point = True
        else:
            break
        position += 1
    if digits == 0:
        return 0.0, position, NO_NUMBER
    if position < stop and (data[position] == SMALL_E or data[position] == LARGE_E):
        power, position, wrong = _parse_exponent(data, position + 1, stop)
        if wrong != FINE:
            return 0.0, position, wrong
        exponent += power
    value = _scaled(np.float64(mantissa), exponent)
    wrong = FINE if value < _FLOAT32_LIMIT else TOO_LARGE
    return -value if negative else value, position, wrong


@kernel
def _parse_exponent(data: Any, position: int, stop: int) -> tuple[Any, int, int]:
    negative = position < stop and data[position] == MINUS
    if negative or (position < stop and data[position] == PLUS):
        position += 1
    value: Any = 0
    first = position
    while position < stop and ZERO <= data[position] <= NINE:
        value = min(value * 10 + np.int64(data[position] - ZERO), _EXPONENT_LIMIT)
        position += 1
    wrong = NO_NUMBER if position == first else FINE
    return -value if negative else value, position, wrong


@kernel
def _scaled(mantissa: float, exponent: int) -> Any:
    if exponent == 0 or mantissa == 0.0:
        return mantissa
    if exponent < -_POWER_LIMIT:
        return 0.0
    if exponent < 0:
        return mantissa / _POWERS[-exponent]
    return mantissa * _POWERS[min(exponent, _POWER_LIMIT)]


@kernel
def count_rows(data: Any, comment: int, tabs_are_blank: bool) -> int:
    """How many lines are rows: not blank, and not begun with `comment` (-1: no comments)."""
    rows, position = 0, 0
    while position < data.size:
        stop = end_of_line(data, position)
        if not is_skipped(data, position, stop, comment, tabs_are_blank):
            rows += 1
        position = stop + 1
    return rows


@inlined
def is_skipped(data: Any, start: Any, stop: Any, comment: Any, tabs_are_blank: Any) -> Any:
    """Whether the line is blank or a comment, and so no row."""
    position = start
    while position < stop and (
        data[position] == SPACE
        or data[position] == RETURN
        or (tabs_are_blank and data[position] == TAB)
    ):
        position += 1
    return position == stop or data[position] == comment


@inlined
def without_return(data: Any, start: Any, stop: Any) -> Any:
    """The end of the line without a carriage return before its line feed."""
    if stop > start and data[stop - 1] == RETURN:
        return stop - 1
    return stop


@kernel
def capacity(data: Any, first: int, second: int, third: int) -> tuple[int, int]:
    """How many line ends there are, and how many bytes are one of the three given."""
    lines, marks = 0, 0
    for i in range(data.size):
        character = data[i]
        lines += character == END
        marks += character in (first, second, third)
    return lines, marks
