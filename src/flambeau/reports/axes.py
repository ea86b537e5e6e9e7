"""Scales of charts: positions and labels of ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

#: Seconds of a unit, the greatest number of seconds it is used for, and its name.
_TIMES = ((1.0, 120.0, "s"), (60.0, 7200.0, "min"), (3600.0, 259200.0, "h"))
_DAY = 86400.0
#: A range of numbers above this ratio is shown on a logarithmic scale.
_WIDE = 100.0


@final
@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map from `low` to `high` onto pixels `begin` to `end`.

    `ticks` are values and their labels; `unit` is the unit of the labels.
    """

    low: float
    high: float
    begin: float
    end: float
    ticks: tuple[tuple[float, str], ...]
    unit: str = ""
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            value = math.log10(max(value, low))
            low, high = math.log10(low), math.log10(high)
        return self.begin + (self.end - self.begin) * (value - low) / (high - low)


def number_scale(
    low: float, high: float, begin: float, end: float, *, ticks: int = 4, may_be_log: bool = False
) -> Scale:
    """Return a scale for numbers that ends at ticks; logarithmic if allowed and useful."""
    if may_be_log and low > 0 and high / low > _WIDE:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = max(1, math.ceil((last - first) / ticks))
        powers = range(first, last + 1, every)
        found = tuple((10.0**power, _power_text(power)) for power in powers)
        return Scale(10.0**first, 10.0 ** max(last, powers[-1]), begin, end, found, log=True)
    low, high, step = _rounded(low, high, ticks)
    count = round((high - low) / step)
    values = [low + step * place for place in range(count + 1)]
    return Scale(low, high, begin, end, _with_texts(values, step))


def exact_scale(low: float, high: float, begin: float, end: float, *, ticks: int = 5) -> Scale:
    """Return a scale for numbers of steps: it ends at `low` and `high`, and ticks are round."""
    high = high if high > low else low + 1.0
    step = max(1.0, _nice((high - low) / ticks))
    first = math.ceil(low / step)
    values = [step * place for place in range(first, math.floor(high / step) + 1)]
    return Scale(low, high, begin, end, _with_texts(values, step))


def time_scale(high: float, begin: float, end: float, *, ticks: int = 5) -> Scale:
    """Return a scale for elapsed seconds, labelled in a suitable unit."""
    seconds, unit = next(((s, name) for s, most, name in _TIMES if high <= most), (_DAY, "days"))
    high = max(high, 1e-3)
    step = _nice(high / seconds / ticks)
    values = [step * place for place in range(math.floor(high / seconds / step) + 1)]
    found = tuple((value * seconds, text) for value, text in _with_texts(values, step))
    return Scale(0.0, high, begin, end, found, unit)


def _with_texts(values: Sequence[float], step: float) -> tuple[tuple[float, str], ...]:
    greatest = max((abs(value) for value in values), default=0.0)
    return tuple((value, tick_text(value, step, greatest)) for value in values)


def _power_text(power: int) -> str:
    value = 10.0**power
    return tick_text(value, value, value)


def tick_text(value: float, step: float, greatest: float) -> str:
    """Return the label of a tick, with the digits that the distance to the next one needs.

    The unit (k, M) follows from the `greatest` value, so that all ticks of an axis share it.
    """
    if value == 0:
        return "0"
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if greatest >= max(unit, 1e4):
            return f"{_fixed(value / unit, step / unit)}{name}"
    if greatest < 1e-3:
        power = math.floor(math.log10(greatest))
        return f"{_fixed(value / 10.0**power, step / 10.0**power)}e{power}"
    return _fixed(value, step)


def _fixed(value: float, step: float) -> str:
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounded(low: float, high: float, ticks: int) -> tuple[float, float, float]:
    """Return round ends of a range, and the distance between ticks."""
    if low == high:
        margin = abs(low) * 0.5 or 1.0
        low, high = low - margin, high + margin
        low = max(low, 0.0) if low + margin >= 0 else low
    if low > 0 and low < 0.4 * high:
        low = 0.0
    step = _nice((high - low) / ticks)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step


def _nice(step: float) -> float:
    """Round up to the next of 1, 2, 5, 10 and so on."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))
