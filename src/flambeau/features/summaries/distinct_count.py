"""Estimates of the number of distinct keys, from small registers that can be merged.

Keys are hashed. The first bits of a hash select a register, which holds the largest number of
leading zeros, plus one, of the remaining bits of its hashes. The estimate is that of Ertl, "New
cardinality estimation algorithms for HyperLogLog sketches" (2017), which is unbiased for small and
large numbers.
"""

import math
from typing import Any

import numpy as np

Registers = np.ndarray[Any, np.dtype[np.uint8]]

_BITS = 12
_REGISTERS = 1 << _BITS
_RANKS = 64 - _BITS
#: The standard deviation of the estimate, as a fraction of the true number.
RELATIVE_ERROR = 1.04 / math.sqrt(_REGISTERS)


def empty_registers() -> Registers:
    """Return the registers of no keys."""
    return np.zeros(_REGISTERS, np.uint8)


def estimate(registers: Registers) -> int:
    """Return an estimate of the number of distinct keys that were added to registers."""
    having = np.bincount(registers, minlength=_RANKS + 2)
    total = _REGISTERS * _tau(1 - having[_RANKS + 1] / _REGISTERS)
    for rank in range(_RANKS, 0, -1):
        total = 0.5 * (total + having[rank])
    total += _REGISTERS * _sigma(having[0] / _REGISTERS)
    return 0 if math.isinf(total) else round(_REGISTERS**2 / (2 * math.log(2) * total))


def _sigma(x: float) -> float:
    """Return x + the sum of x**(2**k) * 2**(k-1) for k from 1 on."""
    if x == 1:
        return math.inf
    factor, total, before = 1.0, x, -1.0
    while total != before:
        before = total
        x *= x
        total += x * factor
        factor *= 2
    return total


def _tau(x: float) -> float:
    """Return a third of 1 - x - the sum of (1 - x**(2**-k))**2 * 2**-k for k from 1 on."""
    if x in (0, 1):
        return 0.0
    factor, total, before = 1.0, 1 - x, -1.0
    while total != before:
        before = total
        x = math.sqrt(x)
        factor *= 0.5
        total -= (1 - x) ** 2 * factor
    return total / 3
