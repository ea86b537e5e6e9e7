"""Charts of curves over steps and over time, with one line for each run or part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import final

import numpy as np

from flambeau.reports.axes import Scale, exact_scale, number_scale, time_scale
from flambeau.reports.drawing import caption, number, svg
from flambeau.reports.points import Array, Thinned

_WIDTH, _HEIGHT = 400, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 16, 12, 36
#: Lines with at most this many points have a mark at each.
_MARKED = 60
#: Numbers this many times greater than the median make a scale logarithmic, even with zeros.
_FAR = 50.0
#: Number of colours; further lines repeat them with dashes.
COLOURS = 7

STYLE = """
:root { --c0: #0072b2; --c1: #d55e00; --c2: #007a5a; --c3: #b0488a; --c4: #8a6d00; --c5: #3d3d3d;
  --c6: #1f9ad6; --grid: #e4e7ec; }
@media (prefers-color-scheme: dark) { :root { --c0: #56b4e9; --c1: #f0813a; --c2: #2bc79a;
  --c3: #e396c4; --c4: #e8cf3a; --c5: #d0d0d0; --c6: #8fb8ff; --grid: #2d333b; } }
.chart { margin: .4rem 0 0; touch-action: pan-y; }
.chart text { font-size: 12.5px; }
.grid { fill: none; stroke: var(--grid); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.band { fill-opacity: .28; stroke-opacity: .8; stroke-width: .8; }
.dash1 { stroke-dasharray: 6 3; } .dash2 { stroke-dasharray: 2 2; }
.cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: 13px; margin: .2rem 0;
  color: var(--soft); overflow-wrap: anywhere; }
.keys svg { display: inline-block; width: 26px; height: 10px; margin-right: .35rem; }
.read { min-height: 1.4em; font-size: 12.5px; color: var(--soft); margin: 0;
  font-variant-numeric: tabular-nums; }
""" + "".join(
    f".s{place} {{ stroke: var(--c{place}); }} .f{place} {{ fill: var(--c{place}); }}\n"
    for place in range(COLOURS)
)


@final
@dataclass(frozen=True)
class Line:
    """A curve; `place` is its index among the lines, which determines colour and dashes."""

    name: str
    points: Thinned
    place: int

    @property
    def look(self) -> str:
        """Return the CSS classes of its strokes."""
        return stroke(self.place)


def scaled(points: Thinned, factor: float) -> Thinned:
    """Return the points with their numbers multiplied by a factor."""
    return Thinned(
        points.elapsed,
        points.steps,
        points.lows * factor,
        points.highs * factor,
        points.means * factor,
    )


def stroke(place: int) -> str:
    """Return the CSS classes of a line by its index."""
    dashes = place // COLOURS % 3
    return f"line s{place % COLOURS}" + (f" dash{dashes}" if dashes else "")


def chart(title: str, unit: str, lines: Sequence[Line], *, may_be_log: bool = False) -> str:
    """Return a card with two charts of the lines, over steps and over time.

    The page shows one of them. A thinned line has a band from the least to the greatest of the
    points that each of its entries stands for.
    """
    shown = [line for line in lines if len(line.points)]
    if not shown:
        return ""
    low = min(float(line.points.lows.min()) for line in shown)
    high = max(float(line.points.highs.max()) for line in shown)
    top, bottom = _TOP, _HEIGHT - _BOTTOM
    if may_be_log and low <= 0:
        low = _least_shown(shown, low, high)
    upward = number_scale(low, high, bottom, top, may_be_log=may_be_log)
    notes = ", ".join(filter(None, [unit, "logarithmic scale" if upward.log else ""]))
    heading = f"<h3>{escape(title)}</h3>" + (f"<small>{escape(notes)}</small>" if notes else "")
    pictures = "".join(_picture(title, kind, upward, shown) for kind in ("step", "time"))
    thinned = any(line.points.is_thinned for line in shown)
    band = "<small>Line: mean; band: least to greatest.</small>" if thinned else ""
    return f'<article>{heading}{pictures}<p class="read" aria-live="off"></p>{band}</article>'


def _least_shown(lines: Sequence[Line], low: float, high: float) -> float:
    """Return the start of a logarithmic scale if few numbers are far above the others, else `low`.

    Smaller numbers, such as 0, are drawn at the lower end.
    """
    means = np.concatenate([line.points.means for line in lines])
    positive = means[means > 0]
    if not len(positive) or high < _FAR * float(np.median(positive)):
        return low
    return max(float(positive.min()), high / 1e5)


def key(names: Sequence[str]) -> str:
    """Return the legend of the lines of several runs."""
    parts = "".join(
        f'<span><svg viewBox="0 0 26 10" aria-hidden="true"><path class="{stroke(place)}" '
        f'd="M0 5H26"/></svg>{escape(name)}</span>'
        for place, name in enumerate(names)
    )
    return f'<p class="keys">{parts}</p>'


def _picture(title: str, kind: str, upward: Scale, lines: Sequence[Line]) -> str:
    begin, end = _LEFT, _WIDTH - _RIGHT
    values = [_along(line, kind) for line in lines]
    last = max(float(value.max()) for value in values)
    if kind == "time":
        along = time_scale(last, begin, end)
        label = f"elapsed time in {along.unit}"
    else:
        along = exact_scale(min(0.0, min(float(v.min()) for v in values)), last, begin, end)
        label = "step"
    marks = [*_frame(upward, along), caption((begin + end) / 2, _HEIGHT - 3, label, "middle")]
    for line, value in zip(lines, values, strict=True):
        marks += _line(line, value, along, upward)
    scales = f'data-x="{along.low:g} {along.high:g} {begin} {end} {_unit_seconds(along)}"'
    words = f"{title} by {label}, from {number(upward.low)} to {number(upward.high)}"
    drawn = svg(_WIDTH, _HEIGHT, words, marks, f"chart by-{kind}")
    heights = (
        f'data-y="{upward.low:g} {upward.high:g} {upward.begin} {upward.end} {int(upward.log)}"'
    )
    return drawn.replace("<svg ", f'<svg {scales} {heights} data-unit="{along.unit}" ', 1)


def _unit_seconds(scale: Scale) -> float:
    return {"min": 60.0, "h": 3600.0, "days": 86400.0}.get(scale.unit, 1.0)


def _along(line: Line, kind: str) -> Array:
    return line.points.elapsed if kind == "time" else line.points.steps


def _frame(upward: Scale, along: Scale) -> Iterator[str]:
    """Yield horizontal grid lines, the lower axis, and the labels of both scales."""
    left, right = along.begin, along.end
    grid = "".join(f"M{left:g} {upward(value):.1f}H{right:g}" for value, _ in upward.ticks)
    yield f'<path class="grid" d="{grid}"/>'
    for value, words in upward.ticks:
        yield caption(left - 5, upward(value) + 4, words, "end")
    below = "".join(f"M{along(value):.1f} {upward.begin:g}v4" for value, _ in along.ticks)
    yield f'<path class="axis" d="M{left:g} {upward.begin:g}H{right:g}{below}"/>'
    for value, words in along.ticks:
        yield caption(along(value), upward.begin + 16, words, "middle")


def _line(line: Line, values: Array, along: Scale, upward: Scale) -> Iterator[str]:
    """Yield the band and the curve; where steps go back, after a restart, start a new piece."""
    back = np.flatnonzero(np.diff(values) < 0) + 1
    bounds = [0, *back.tolist(), len(values)]
    # The outline keeps a spike visible if it is thinner than a pixel.
    fill = f"f{line.place % COLOURS} s{line.place % COLOURS}"
    points = line.points
    for begin, end in pairwise(bounds):
        x = [along(value) for value in values[begin:end]]
        middle = [upward(value) for value in points.means[begin:end]]
        if (points.highs[begin:end] > points.lows[begin:end]).any():
            highs = [upward(value) for value in points.highs[begin:end]]
            lows = [upward(value) for value in points.lows[begin:end]]
            outline = _path([*x, *reversed(x)], [*highs, *reversed(lows)])
            yield f'<path class="band {fill}" d="{outline}z"/>'
        yield (
            f'<path class="{line.look}" data-name="{escape(line.name)}" d="{_path(x, middle)}"/>'
        )
    if len(values) <= _MARKED:
        dots = zip(values, points.means, strict=True)
        kind = f'class="f{line.place % COLOURS}" r="2.4"'
        places = (f'cx="{along(x):.1f}" cy="{upward(y):.1f}"' for x, y in dots)
        yield "".join(f"<circle {kind} {place}/>" for place in places)


def _path(x: Sequence[float], y: Sequence[float]) -> str:
    pairs = (f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    return "M" + "L".join(pairs)
