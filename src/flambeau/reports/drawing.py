"""SVG elements, and numbers as short text."""

from collections.abc import Sequence
from html import escape
from typing import Any


def svg(width: float, height: float, label: str, marks: Sequence[str], kind: str = "") -> str:
    """Return an SVG image; `label` describes it for screen readers."""
    named = f' class="{kind}"' if kind else ""
    size = f'viewBox="0 0 {width:g} {height:g}"'
    return f'<svg{named} {size} role="img" aria-label="{escape(label)}">{"".join(marks)}</svg>'


def caption(x: float, y: float, content: str, anchor: str = "start") -> str:
    """Return an SVG text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def number(value: Any) -> str:
    """Return a value as short text: a number with four digits, large ones with k, M and so on."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    size = abs(value)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if unit <= size < 1e15:
            return f"{value / (1e3 if unit == 1e4 else unit):.4g}{name}"
    return f"{value:.4g}" if isinstance(value, float) or size >= 1e15 else f"{value:,}"


def percent(share: float) -> str:
    """Return a share in percent; it is not rounded to 0% or 100% unless it is 0 or 1."""
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "under 0.1%"
    if share > 0.999:
        return "over 99.9%"
    return f"{share:.1%}" if share < 0.1 or share > 0.9 else f"{share:.0%}"
