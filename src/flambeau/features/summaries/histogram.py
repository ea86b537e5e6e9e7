"""Bounds of the intervals of histograms, and quantiles."""

from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]
Scale = Literal["linear", "log"]

INTERVALS = 24
#: Numbers further out than these quantiles are in the first and last interval.
_TAIL = 0.005
#: Nonnegative numbers whose largest is this many times their median get a logarithmic scale.
_LONG_TAIL = 50
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
#: Integers with a wider range than this are treated like floats.
_WHOLE = 1e9


def quantiles_of(ordered: Array, fractions: tuple[float, ...] = QUANTILES) -> Array:
    """Return the numbers below which (or at which) fractions of ordered numbers are."""
    places = np.ceil(np.asarray(fractions) * len(ordered)).astype(np.int64) - 1
    found: Array = ordered[np.clip(places, 0, len(ordered) - 1)]
    return found


def bounds_for(numbers: Array) -> tuple[list[float], Scale]:
    """Return the bounds of intervals for finite numbers, at least one, and their scale.

    Intervals have equal widths; on a logarithmic scale, in logarithms of the numbers (plus one, if
    there are zeros). On a linear scale, all intervals of integers have the same number of integers.
    """
    ordered = np.sort(numbers)
    low, middle, high = quantiles_of(ordered, (_TAIL, 0.5, 1 - _TAIL)).astype(np.float64).tolist()
    few = numbers.dtype != np.float64 and high - low < INTERVALS
    if not few and low >= 0 and high > _LONG_TAIL * max(middle, low):
        return _logarithmic(low, high), "log"
    if numbers.dtype != np.float64 and high - low < _WHOLE:
        return _whole(low, high), "linear"
    if low == high:
        return [_below(low), _above(high)], "linear"
    steps = np.arange(INTERVALS + 1) / INTERVALS
    return (low * (1 - steps) + high * steps).tolist(), "linear"


def _whole(low: float, high: float) -> list[float]:
    """Return bounds between integers."""
    step = -(-(high - low + 1) // INTERVALS)
    found: list[float] = (np.arange(low, high + step + 1, step) - 0.5).tolist()
    return found


def _logarithmic(low: float, high: float) -> list[float]:
    if low > 0:
        bounds = np.exp(np.linspace(np.log(low), np.log(high), INTERVALS + 1))
    else:
        bounds = np.expm1(np.linspace(np.log1p(low), np.log1p(high), INTERVALS + 1))
    bounds[0], bounds[-1] = low, high
    found: list[float] = bounds.tolist()
    return found


def _below(number: float) -> float:
    return number - max(0.5, abs(number) / 1000)


def _above(number: float) -> float:
    return number + max(0.5, abs(number) / 1000)


def shares_in(numbers: Array, bounds: list[float]) -> list[float]:
    """Return the share of the finite numbers in each interval; the outer ones are open."""
    places = np.searchsorted(np.asarray(bounds[1:-1]), numbers, side="right")
    counts = np.bincount(places, minlength=len(bounds) - 1)
    return [round(share, 6) for share in (counts / max(1, len(numbers))).tolist()]
