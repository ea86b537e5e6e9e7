"""Compiled kernels for numbers and lines in bytes of text."""

from typing import Any

import numpy as np

from flambeau.data.sources.text.row_faults import FINE, LONG_ID, NO_NUMBER, TOO_LARGE
from flambeau.data.text_hash import word_at
from flambeau.kernels.compiled import inlined, kernel

ZERO, NINE = ord("0"), ord("9")
PLUS, MINUS, POINT = ord("+"), ord("-"), ord(".")
SMALL_E, LARGE_E = ord("e"), ord("E")
SPACE, TAB, RETURN, END = ord(" "), ord("\t"), ord("\r"), ord("\n")

_TEN = np.uint64(10)
_EACH_BYTE = np.uint64(0x0101010101010101)
HIGH_BITS = np.uint64(0x8080808080808080)
_LARGEST_ID = np.uint64((1 << 63) - 1)
#: This many digits always fit into 64 bits. More digits do not change a float32.
_SURE_DIGITS = 18
_DIGITS_LIMIT = np.uint64(10 ** (_SURE_DIGITS - 1))
#: Slightly more than the largest id: an approximate value above it is not a valid id.
_ABOUT_LARGEST = 9.3e18
#: Limit below which a number rounds to a finite float32.
_FLOAT32_LIMIT = (2.0 - 2.0**-24) * 2.0**127
#: With a higher power of ten, a mantissa of 18 digits is 0 or too large for a float32.
_POWER_LIMIT = 80
_POWERS = 10.0 ** np.arange(_POWER_LIMIT + 1)
_EXPONENT_LIMIT = 100_000


@inlined
def byte(data: Any, position: Any) -> Any:
    """Return the byte at a position that is never negative, which saves the check for it."""
    return data[np.uint64(position)]


@inlined
def is_blank(character: Any) -> Any:
    """Return whether the character separates the parts of a row."""
    return character in (SPACE, TAB)


@inlined
def find(data: Any, position: Any, stop: Any, character: Any) -> Any:
    """Return the first position of the character, or `stop`; compare eight bytes at a time."""
    pattern = np.uint64(character) * _EACH_BYTE
    while position + 8 <= stop:
        other = word_at(data, position) ^ pattern
        if (other - _EACH_BYTE) & ~other & HIGH_BITS:  # one of its bytes is 0
            break
        position += 8
    while position < stop and byte(data, position) != character:
        position += 1
    return position


@inlined
def end_of_line(data: Any, position: Any) -> Any:
    """Return the end of the line: its line feed, or the end of the data."""
    return find(data, position, data.size, END)


@inlined
def parse_id(data: Any, position: int, stop: int) -> tuple[Any, int, int]:
    """Parse a number without a sign: return it, where its text ends, and a fault."""
    value, first = np.uint64(0), position
    while position < stop and ZERO <= byte(data, position) <= NINE:
        value = value * _TEN + np.uint64(byte(data, position) - ZERO)
        position += 1
    if position == first:
        return np.int64(0), position, NO_NUMBER
    if position - first > _SURE_DIGITS:
        about = 0.0
        for i in range(first, position):
            about = about * 10.0 + (byte(data, i) - ZERO)
        if about > _ABOUT_LARGEST or value > _LARGEST_ID:
            return np.int64(0), position, LONG_ID
    return np.int64(value), position, FINE


@inlined
def parse_float(data: Any, position: int, stop: int) -> tuple[float, int, int]:
    """Parse a decimal number: return its value as precise as a float32, its end, and a fault."""
    negative = position < stop and byte(data, position) == MINUS
    if negative or (position < stop and byte(data, position) == PLUS):
        position += 1
    first, mantissa, fraction = position, np.uint64(0), 0
    while position < stop and ZERO <= byte(data, position) <= NINE:
        mantissa = mantissa * _TEN + np.uint64(byte(data, position) - ZERO)
        position += 1
    digits = position - first
    if position < stop and byte(data, position) == POINT:
        position += 1
        while position < stop and ZERO <= byte(data, position) <= NINE:
            mantissa = mantissa * _TEN + np.uint64(byte(data, position) - ZERO)
            position += 1
            fraction += 1
        digits += fraction
    if digits == 0:
        return 0.0, position, NO_NUMBER
    exponent = -fraction
    if digits > _SURE_DIGITS:
        mantissa, exponent = _long_mantissa(data, first, position)
    if position < stop and (byte(data, position) == SMALL_E or byte(data, position) == LARGE_E):
        power, position, wrong = _parse_exponent(data, position + 1, stop)
        if wrong != FINE:
            return 0.0, position, wrong
        exponent += power
    value = _scaled(np.float64(mantissa), exponent)
    wrong = FINE if value < _FLOAT32_LIMIT else TOO_LARGE
    return -value if negative else value, position, wrong


@kernel
def _long_mantissa(data: Any, position: int, stop: int) -> tuple[Any, int]:
    """Return the first 18 digits of a number, and the power of ten to multiply them by."""
    mantissa, exponent, after_point = np.uint64(0), 0, False
    for i in range(position, stop):
        if byte(data, i) == POINT:
            after_point = True
        elif mantissa < _DIGITS_LIMIT:
            mantissa = mantissa * _TEN + np.uint64(byte(data, i) - ZERO)
            exponent -= after_point
        else:
            exponent += not after_point
    return mantissa, exponent


@kernel
def _parse_exponent(data: Any, position: int, stop: int) -> tuple[Any, int, int]:
    negative = position < stop and byte(data, position) == MINUS
    if negative or (position < stop and byte(data, position) == PLUS):
        position += 1
    value: Any = 0
    first = position
    while position < stop and ZERO <= byte(data, position) <= NINE:
        value = min(value * 10 + np.int64(byte(data, position) - ZERO), _EXPONENT_LIMIT)
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
    """Return the number of lines that are neither blank nor begin with `comment` (-1: none)."""
    rows, position = 0, 0
    while position < data.size:
        stop = end_of_line(data, position)
        if not is_skipped(data, position, stop, comment, tabs_are_blank):
            rows += 1
        position = stop + 1
    return rows


@inlined
def is_skipped(data: Any, start: Any, stop: Any, comment: Any, tabs_are_blank: Any) -> Any:
    """Return whether the line is blank or a comment, and therefore not a row."""
    position = start
    while position < stop and (
        byte(data, position) == SPACE
        or byte(data, position) == RETURN
        or (tabs_are_blank and byte(data, position) == TAB)
    ):
        position += 1
    return position == stop or byte(data, position) == comment


@inlined
def without_return(data: Any, start: Any, stop: Any) -> Any:
    """Return the end of the line without a carriage return before its line feed."""
    if stop > start and byte(data, stop - 1) == RETURN:
        return stop - 1
    return stop


@kernel
def capacity(data: Any, first: int, second: int, third: int) -> tuple[int, int]:
    """Return the number of line ends, and of bytes that are one of the three given."""
    lines, marks = 0, 0
    for i in range(data.size):
        character = byte(data, i)
        lines += character == END
        marks += character in (first, second, third)
    return lines, marks
