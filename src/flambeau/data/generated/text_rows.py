"""Generated rows as text: labels, numbers, ids of 8 hexadecimal digits, separated by tabs."""

from typing import Any

import numpy as np

from flambeau.data.generated.drawing import MISSING_NUMBER, DrawnRows
from flambeau.data.generated.effects import Array
from flambeau.kernels.compiled import inlined, kernel

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_TAB, _END, _MINUS, _ZERO = (np.uint8(ord(character)) for character in "\t\n-0")
#: A sign, ten digits and a tab.
_LONGEST_NUMBER = 12
#: The digits, and a tab or line end.
_LONGEST_CODE = 9


def as_lines(labels: Array, rows: DrawnRows) -> memoryview:
    """Return the lines of rows as bytes, `labels` [rows, tasks] first; missing values are empty."""
    longest = 2 * labels.shape[1] + _LONGEST_NUMBER * rows.numbers.shape[1]
    longest += _LONGEST_CODE * rows.codes.shape[1]
    out = np.empty(len(labels) * longest, np.uint8)
    size = _write_lines(labels, rows.numbers, rows.codes, rows.present, _DIGITS, out)
    return out[:size].data


def as_texts(codes: Array) -> Array:
    """Return the digits of codes [rows] in one array: 8 bytes each."""
    out = np.empty(len(codes) * 8, np.uint8)
    _write_texts(codes, _DIGITS, out)
    return out


@inlined
def _put_code(code: Any, digits: Any, out: Any, at: Any) -> Any:
    for k in range(8):
        out[at + k] = digits[(code >> np.uint32(28 - 4 * k)) & np.uint32(15)]
    return at + 8


@inlined
def _put_number(number: Any, out: Any, at: Any) -> Any:
    rest = np.int64(number)
    if rest < 0:
        out[at] = _MINUS
        at += 1
        rest = -rest
    power = 1
    while power * 10 <= rest:
        power *= 10
    while power > 0:
        out[at] = _ZERO + np.uint8(rest // power % 10)
        at += 1
        power //= 10
    return at


@kernel
def _write_texts(codes: Any, digits: Any, out: Any) -> None:
    at = 0
    for i in range(codes.size):
        at = _put_code(codes[i], digits, out, at)


@kernel
def _write_lines(labels: Any, numbers: Any, codes: Any, present: Any, digits: Any, out: Any) -> Any:
    at = 0
    for i in range(labels.shape[0]):
        for k in range(labels.shape[1]):
            out[at] = _ZERO + np.uint8(labels[i, k])
            out[at + 1] = _TAB
            at += 2
        for j in range(numbers.shape[1]):
            if numbers[i, j] != MISSING_NUMBER:
                at = _put_number(numbers[i, j], out, at)
            out[at] = _TAB
            at += 1
        for f in range(codes.shape[1]):
            if present[i, f]:
                at = _put_code(codes[i, f], digits, out, at)
            out[at] = _TAB
            at += 1
        out[at - 1] = _END
    return at
