"""The statistics of a prepared folder as one self-contained page, which needs no network.

All names and values in it come from the user's data, and are escaped.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from flambeau.features.summaries.column_warnings import unseen_share
from flambeau.features.summaries.page_style import STYLE
from flambeau.features.summaries.pictures import SUBSETS, picture
from flambeau.reports.document import document
from flambeau.reports.drawing import number, percent

Values = dict[str, Any]

_KEY = (
    '<p class="key soft">'
    '<span><svg viewBox="0 0 22 12"><rect class="train" width="22" height="12"/></svg>train</span>'
    '<span><svg viewBox="0 0 22 12"><polyline class="valid" points="0,6 22,6"/>'
    '<circle class="valid" cx="11" cy="6" r="3.5"/></svg>valid</span>'
    '<span><svg viewBox="0 0 22 12"><polyline class="test" points="0,6 22,6"/>'
    '<path class="test" d="M11 1l4.5 5l-4.5 5l-4.5 -5z"/></svg>test</span></p>'
)
#: Limit on the characters of a number or time in a table: times are shown to the minute.
_CHARACTERS = 16
_NAMES = {"valid": "valid", "test": "test", "first_to_last": "within train"}


def page(statistics: Mapping[str, Any], title: str) -> str:
    """Return the page as HTML."""
    unchanged = [name for name in statistics["columns"] if name not in statistics["features"]]
    features = {
        name: statistics["features"].get(name, statistics["raw"].get(name))
        for name in statistics["columns"]
    }
    raw = {name: each for name, each in statistics["raw"].items() if name not in unchanged}
    body = [
        f"<h1>{escape(title)}</h1>",
        *_head(statistics, len(features), len(raw)),
        *_warnings(features, "feature"),
        *_warnings(raw, "raw"),
        _KEY,
        *_section("Features", "feature", features),
        *_section("Raw columns", "raw", raw),
    ]
    return document(title, "\n".join(body), style=STYLE)


def _head(statistics: Mapping[str, Any], features: int, raw: int) -> Iterator[str]:
    rows = ", ".join(f"{name} {count:,}" for name, count in statistics["rows"].items() if count)
    plural = "" if features == 1 else "s"
    yield f"<p>{features} feature{plural} and {raw} other raw columns. Rows: {escape(rows)}.</p>"
    fraction = statistics["sampled_fraction"]
    if fraction < 1:
        text = f"a sample of {percent(fraction)} of the rows"
        yield f'<p class="soft">Histograms, quantiles and drift are those of {text}.</p>'
    if statistics["read_with"]:
        done = escape(" and ".join(statistics["read_with"]))
        text = f"The reader has done {done} as it parsed, so raw columns are the results of these."
        yield f'<p class="soft">{text}</p>'


def _warnings(columns: Mapping[str, Values], kind: str) -> Iterator[str]:
    found = [(name, each["warnings"]) for name, each in columns.items() if each["warnings"]]
    if not found:
        return
    words = "features" if kind == "feature" else "raw columns"
    yield f"<details{' open' if len(found) <= 12 else ''}><summary>{len(found)} of {len(columns)} "
    yield f"{words} have warnings</summary><ul>"
    for name, warnings in found:
        text = "; ".join(warning["text"] for warning in warnings)
        link = f'<a href="#{_anchor(columns, kind, name)}">{escape(name)}</a>'
        yield f"<li>{link}: {escape(text)}</li>"
    yield "</ul></details>"


def _anchor(columns: Mapping[str, Values], kind: str, name: str) -> str:
    return f"{kind}-{list(columns).index(name)}"


def _section(title: str, kind: str, columns: Mapping[str, Values]) -> Iterator[str]:
    """Return a card for each column, those with warnings first."""
    if not columns:
        return
    yield f"<h2>{title}</h2>"
    if len(columns) > 12:
        links = (
            f'<li><a href="#{kind}-{place}">{escape(name)}</a></li>'
            for place, name in enumerate(columns)
        )
        yield "<details><summary>All by name</summary>"
        yield f'<ul class="index">{"".join(links)}</ul></details>'
    yield '<div class="cards">'
    numbered = enumerate(columns.items())
    for place, (name, column) in sorted(numbered, key=lambda each: not each[1][1]["warnings"]):
        yield _card(f"{kind}-{place}", name, column)
    yield "</div>"


def _card(anchor: str, name: str, column: Values) -> str:
    size = f", {column['vocabulary']:,} values" if "vocabulary" in column else ""
    parts = [f"<h3>{escape(name)}</h3><small>{escape(column['type'] + size)}</small>"]
    for warning in column["warnings"]:
        parts.append(f'<p class="warn">⚠ {escape(warning["text"])}</p>')
    parts.append(picture(column))
    if "logarithmic scale" in parts[-1]:
        parts.append("<small>logarithmic scale</small>")
    parts.append(_table(column))
    parts.append(_drift(column["drift"]))
    return f'<article id="{anchor}">{"".join(parts)}</article>'


def _table(column: Values) -> str:
    """Return the numbers of a column, with a table column for each subset."""
    subsets = {name: column["subsets"][name] for name in SUBSETS if name in column["subsets"]}
    lines = [(title, [each(subset) for subset in subsets.values()]) for title, each in _LINES]
    head = "".join(f"<th>{name}</th>" for name in subsets)
    body = "".join(
        f"<tr><td>{title}</td>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
        for title, texts in lines
        if any(texts)
    )
    return f'<div class="wide"><table><tr><th></th>{head}</tr>{body}</table></div>'


def _missing(subset: Values) -> str:
    return percent(subset["missing"] / subset["rows"]) if subset["rows"] else ""


def _distinct(subset: Values) -> str:
    if "distinct" not in subset:
        return ""
    about = "about " if subset["distinct_error"] else ""
    return about + number(subset["distinct"])


def _unseen(subset: Values) -> str:
    return percent(unseen_share(subset)) if "unseen" in subset else ""


def _value(name: str) -> Any:
    def text(subset: Values) -> str:
        found = subset.get(name, subset.get("quantiles", {}).get(name))
        return "" if found is None else number(found)[:_CHARACTERS]

    return text


_LINES = (
    ("missing", _missing),
    ("distinct", _distinct),
    ("0: not in vocabulary", _unseen),
    ("infinite", _value("infinite")),
    ("mean", _value("mean")),
    ("deviation", _value("std")),
    ("least", _value("min")),
    ("median", _value("0.5")),
    ("greatest", _value("max")),
)


def _drift(drifts: Values) -> str:
    found = [f"{_NAMES[name]} {drift['index']:.2f}" for name, drift in drifts.items()]
    return f"<small>drift: {escape(', '.join(found))}</small>" if found else ""
