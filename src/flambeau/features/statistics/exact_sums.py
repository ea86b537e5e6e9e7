"""Exact sums of numbers and of their squares, which do not depend on the order of numbers.

A sum is an integer number of units: 2**-1074, the least positive float64, for numbers, and its
square for squares. It is stored in digits of 32 bits. These are int64 numbers, and may be negative,
so that additions need not carry.
"""

from fractions import Fraction
from typing import Any, final

import numpy as np

from flambeau.kernels.compiled import inlined, kernel

Array = np.ndarray[Any, Any]

_UNIT = 1074
#: Digits for the sum of 2**63 numbers (or squares) of which each may be the largest.
_DIGITS, _SQUARE_DIGITS = 68, 136
#: Digits are carried after this many numbers, which change a digit by less than 2**36 each.
_ROWS = 1 << 24

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MANTISSA = np.int64((1 << 52) - 1)


@final
class ExactSums:
    """The exact sum of numbers, and that of their squares."""

    def __init__(self) -> None:
        self._sum = np.zeros(_DIGITS, np.int64)
        self._squares = np.zeros(_SQUARE_DIGITS, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._sum.nbytes + self._squares.nbytes

    def add(self, numbers: Array) -> None:
        """Add numbers: int64, uint64, or finite float64."""
        add = _add_floats if numbers.dtype == np.float64 else _add_integers
        for first in range(0, len(numbers), _ROWS):
            add(numbers[first : first + _ROWS], self._sum, self._squares)

    def totals(self) -> tuple[int, int]:
        """Return both sums as numbers of units."""
        return _number(self._sum), _number(self._squares)


def in_units(total: int) -> Fraction:
    """Convert a sum of numbers from units to a fraction."""
    return Fraction(total, 1 << _UNIT)


def in_square_units(total: int) -> Fraction:
    """Convert a sum of squares from units to a fraction."""
    return Fraction(total, 1 << (2 * _UNIT))


def _number(digits: Array) -> int:
    return sum(digit << (32 * place) for place, digit in enumerate(digits.tolist()))


@inlined
def _add_at(digits: Any, position: Any, magnitude: Any, sign: Any) -> Any:
    """Add a 64-bit magnitude times 2**position."""
    place, shift = position >> 5, np.uint64(position & 31)
    low = (magnitude & _LOW) << shift
    high = (magnitude >> _HALF) << shift
    digits[place] += sign * np.int64(low & _LOW)
    digits[place + 1] += sign * (np.int64(low >> _HALF) + np.int64(high & _LOW))
    digits[place + 2] += sign * np.int64(high >> _HALF)


@inlined
def _add_one(total: Any, squares: Any, position: Any, magnitude: Any, sign: Any) -> Any:
    """Add a magnitude times 2**position to the sum, and its square to the sum of squares."""
    _add_at(total, position, magnitude, sign)
    low, high, plus = magnitude & _LOW, magnitude >> _HALF, np.int64(1)
    _add_at(squares, 2 * position, low * low, plus)
    if high:
        _add_at(squares, 2 * position + 33, low * high, plus)
        _add_at(squares, 2 * position + 64, high * high, plus)


@inlined
def _carry(digits: Any) -> Any:
    """Carry, so that digits are below 2**32; the highest has the sign of the sum."""
    for place in range(digits.size - 1):
        carried = digits[place] >> 32
        digits[place] -= carried << 32
        digits[place + 1] += carried


@kernel
def _add_floats(numbers: Any, total: Any, squares: Any) -> None:
    bits = numbers.view(np.int64)
    for i in range(bits.size):
        exponent = (bits[i] >> 52) & 2047
        mantissa = bits[i] & _MANTISSA
        if exponent:
            mantissa |= _MANTISSA + 1
            exponent -= 1
        sign = np.int64(-1) if bits[i] < 0 else np.int64(1)
        _add_one(total, squares, exponent, np.uint64(mantissa), sign)
    _carry(total)
    _carry(squares)


@kernel
def _add_integers(numbers: Any, total: Any, squares: Any) -> None:
    for i in range(numbers.size):
        number = numbers[i]
        sign = np.int64(-1) if number < 0 else np.int64(1)
        # The bits of -2**63 negated are those of 2**63.
        magnitude = np.uint64(-number) if number < 0 else np.uint64(number)
        _add_one(total, squares, np.int64(_UNIT), magnitude, sign)
    _carry(total)
    _carry(squares)
