"""Small pictures of columns, as SVG: a histogram, or bars of the most frequent values."""

from collections.abc import Sequence
from typing import Any

from flambeau.reports.drawing import caption, number, percent, svg

SUBSETS = ("train", "valid", "test")
_WIDTH, _LEFT, _RIGHT = 320, 36, 6
_BARS = 8
_BAR = 17
_LONGEST_NAME = 18

Values = dict[str, Any]


def picture(column: Values) -> str:
    """Return the picture of a column as SVG; an empty text if there is nothing to show."""
    train = column["subsets"].get("train", {})
    top = train.get("top", [])
    all_shown = train.get("distinct_error") == 0 and train.get("distinct", 0) <= _BARS
    if "histogram" in column and not (all_shown and top):
        return _histogram(column["histogram"])
    return _bars(column) if top else ""


def _histogram(found: Values) -> str:
    """Return bars for the training rows, and a line for each of the other subsets."""
    shares, bounds = found["shares"], found["bounds"]
    top, bottom = 8.0, 92.0
    highest = max(max(each, default=0) for each in shares.values()) or 1.0
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(bounds) - 1)

    def height(value: float) -> float:
        return bottom - (bottom - top) * value / highest

    marks = [_frame(top, bottom, highest)]
    for place, value in enumerate(shares.get("train", [])):
        if value:
            x, y = _LEFT + place * step, height(value)
            size = f'width="{max(0.5, step - 1):.1f}" height="{bottom - y:.1f}"'
            marks.append(f'<rect class="train" x="{x:.1f}" y="{y:.1f}" {size}/>')
    for name in SUBSETS[1:]:
        if any(shares.get(name, [])):
            points = [
                f"{_LEFT + (place + side) * step:.1f},{height(value):.1f}"
                for place, value in enumerate(shares[name])
                for side in (0, 1)
            ]
            marks.append(f'<polyline class="{name}" points="{" ".join(points)}"/>')
    marks += _ticks(bounds, step, bottom)
    scale = ", logarithmic scale" if found["scale"] == "log" else ""
    return svg(_WIDTH, 110, f"histogram from {bounds[0]} to {bounds[-1]}{scale}", marks)


def _frame(top: float, bottom: float, highest: float) -> str:
    right = _WIDTH - _RIGHT
    lines = [f'<path class="axis" d="M{_LEFT} {top}H{right}M{_LEFT} {bottom}H{right}"/>']
    lines += [
        caption(_LEFT - 4, top + 4, percent(highest), "end"),
        caption(_LEFT - 4, bottom, "0", "end"),
    ]
    return "".join(lines)


def _ticks(bounds: Sequence[Any], step: float, bottom: float) -> list[str]:
    """Return the labels of the first bound, the one in the middle and the last one."""
    last = len(bounds) - 1
    if isinstance(bounds[0], str):  # times, to the minute
        return [
            caption(_LEFT, bottom + 14, bounds[0][:16]),
            caption(_LEFT + last * step, bottom + 14, bounds[last][:16], "end"),
        ]
    places: Sequence[float] = (0, last // 2, last)
    named = [(place, number(bounds[int(place)])) for place in places]
    if bounds[0] % 1 == 0.5 and bounds[1] - bounds[0] == 1:
        # Each interval is one integer: label the integers, not the bounds between them.
        whole = sorted({0, (last - 1) // 2, last - 1})
        named = [(place + 0.5, number(int(bounds[place] + 0.5))) for place in whole]
    ends: dict[float, str] = {0: "start", last: "end"}
    return [
        caption(_LEFT + place * step, bottom + 14, text, ends.get(place, "middle"))
        for place, text in named
    ]


def _bars(column: Values) -> str:
    """Return bars of the most frequent training values; other subsets have a mark on the bar."""
    subsets = column["subsets"]
    shown = subsets["train"]["top"][:_BARS]
    shares = {name: _shares(subsets[name], shown) for name in SUBSETS if name in subsets}
    shares = {name: found for name, found in shares.items() if found}
    highest = max([value for found in shares.values() for value in found.values()]) or 1.0
    left, right = 116.0, _WIDTH - 58.0
    marks = []
    for place, each in enumerate(shown):
        y, value = place * _BAR, shares["train"][str(each["value"])]
        width = max(1.0, (right - left) * value / highest)
        bar = f'width="{width:.1f}" height="{_BAR - 4}"'
        marks.append(caption(left - 5, y + 12, _name(each["value"]), "end"))
        marks.append(f'<rect class="train" x="{left}" y="{y + 2}" {bar}/>')
        marks += _marks(shares, str(each["value"]), left, (right - left) / highest, y + _BAR / 2)
        marks.append(caption(_WIDTH - 2, y + 12, percent(value), "end"))
    return svg(_WIDTH, len(shown) * _BAR + 2, "bars of the most frequent values", marks)


def _marks(shares: Values, name: str, left: float, scale: float, y: float) -> list[str]:
    found = []
    for subset in SUBSETS[1:]:
        if name in shares.get(subset, {}):
            x = left + scale * shares[subset][name]
            if subset == "valid":
                found.append(f'<circle class="valid" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
            else:
                shape = f"M{x:.1f} {y - 5:.1f}l4.5 5l-4.5 5l-4.5 -5z"
                found.append(f'<path class="test" d="{shape}"/>')
    return found


def _shares(subset: Values, shown: Sequence[Values]) -> dict[str, float]:
    """Return the share of each value shown, as far as the subset's counts include it."""
    rows = subset.get("items", subset["rows"])
    if not rows or "top" not in subset:
        return {}
    counts = {str(each["value"]): each["count"] / rows for each in subset["top"]}
    return {str(each["value"]): counts.get(str(each["value"]), 0.0) for each in shown}


def _name(value: Any) -> str:
    text = '""' if value == "" else number(value)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
