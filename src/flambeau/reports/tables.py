"""HTML tables and bars of a run's numbers."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from flambeau.reports.comparison import duration
from flambeau.reports.drawing import caption, number, percent, svg
from flambeau.reports.run_view import RunView
from flambeau.reports.step_seconds import PARTS, step_seconds

#: Most characters of a value; longer ones are truncated.
_CHARACTERS = 200
_BARS = 24
_KINDS = {
    "worker_lost": "lost",
    "restart": "restart",
    "exception": "exception",
    "warning": "warning",
    "job_end": "end",
}

STYLE = """
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .3rem .6rem;
  align-items: center; font-size: 13px; }
.bars svg { height: 16px; }
.text { text-align: left; }
td.text:last-child { white-space: normal; overflow-wrap: anywhere; width: 70%; }
.wide { margin-top: .8rem; }
.data { fill: var(--c4); } .dense, .compute { fill: var(--c0); } .sparse { fill: var(--c2); }
.wait, .communication { fill: var(--c1); } .staleness { fill: var(--c0); }
.keys rect { stroke: none; }
"""


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], text_from: int = 99) -> str:
    """Return an HTML table; columns from index `text_from` are left-aligned text."""

    def cells(kind: str, values: Sequence[Any]) -> str:
        texts = [' class="text"' if place >= text_from else "" for place in range(len(values))]
        pairs = zip(texts, values, strict=True)
        return "".join(f"<{kind}{text}>{escape(_shown(value))}</{kind}>" for text, value in pairs)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", columns)}</tr>{body}</table></div>'


def _shown(value: Any) -> str:
    if value is None:
        return ""
    exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e15
    text = f"{value:,}" if exact else number(value)
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"


def lines_table(title: str, names: Sequence[str], lines: Mapping[str, Sequence[Any]]) -> str:
    """Return settings or results of several runs side by side."""
    return table([title, *names], [(name, *values) for name, values in lines.items()])


def time_bars(run: RunView) -> str:
    """Return bars of a step's time by part and worker; the slowest worker is marked."""
    known = step_seconds(run)
    if not known:
        return ""
    totals = {name: sum(parts.values()) for name, parts in known.items()}
    longest = max(totals.values()) or 1.0
    workers = [name for name in totals if name.startswith("worker ")]
    slowest = max(workers, key=totals.__getitem__) if len(workers) > 1 else None
    used = [part for part in PARTS if any(part in parts for parts in known.values())]
    rows = "".join(
        f"<span>{escape(name)}{' (slowest)' if name == slowest else ''}</span>"
        f"{_stack(name, parts, longest)}<span>{milliseconds(totals[name])}</span>"
        for name, parts in known.items()
    )
    meaning = "".join(
        f'<span><svg viewBox="0 0 26 10" aria-hidden="true"><rect class="{part}" width="26" '
        f'height="10"/></svg>{part}: {PARTS[part]}</span>'
        for part in used
    )
    return f'<p class="keys">{meaning}</p><div class="bars">{rows}</div>'


def _stack(name: str, parts: Mapping[str, float], longest: float) -> str:
    marks, x = [], 0.0
    whole = sum(parts.values()) or 1.0
    for part in PARTS:
        seconds = max(0.0, parts.get(part, 0.0))
        width = 1000 * seconds / longest
        title = f"{part}: {milliseconds(seconds)}, {percent(seconds / whole)}"
        marks.append(
            f'<rect class="{part}" x="{x:.1f}" width="{width:.1f}" height="10">'
            f"<title>{title}</title></rect>"
        )
        x += width
    words = ", ".join(f"{part} {milliseconds(parts.get(part, 0.0))}" for part in parts)
    return (
        '<svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(f"{name}: {words}")}">{"".join(marks)}</svg>'
    )


def milliseconds(seconds: float) -> str:
    """Return a short time as text, in seconds or milliseconds."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def staleness_bars(histogram: Mapping[int, int]) -> str:
    """Return a histogram of the staleness of gradients."""
    if not histogram:
        return ""
    last = max(histogram)
    size = max(1, -(-(last + 1) // _BARS))
    counts = [0] * (last // size + 1)
    for updates, count in histogram.items():
        counts[updates // size] += count
    highest, whole = max(counts), sum(counts)
    width = 348 / max(len(counts), 8)
    marks = [
        '<path class="axis" d="M44 130H392"/>',
        caption(40, 16, percent(highest / whole), "end"),
    ]
    every = -(-len(counts) // 8)
    for place, count in enumerate(counts):
        x, height = 44 + place * width, 118 * count / highest
        first, end = place * size, place * size + size - 1
        named = str(first) if size == 1 else f"{first} to {end}"
        marks.append(
            f'<rect class="staleness" x="{x + 1:.1f}" y="{130 - height:.1f}" '
            f'width="{width - 2:.1f}" height="{height:.1f}"><title>{named} updates: {count:,} '
            f"gradients, {percent(count / whole)}</title></rect>"
        )
        if place % every == 0:
            marks.append(caption(x + width / 2, 146, str(first), "middle"))
    marks.append(caption(218, 164, "updates made since the values were read", "middle"))
    mean = sum(updates * count for updates, count in histogram.items()) / whole
    words = f"staleness of {whole:,} gradients, {mean:.2f} updates in the mean"
    drawn = svg(400, 170, words, marks, "chart")
    heading = f"<h3>Staleness</h3><small>share of gradients; mean {mean:.2f}</small>"
    return f"<article>{heading}{drawn}</article>"


def rows_table(run: RunView) -> str:
    """Return a table of the rows of data by outcome."""
    rows = (run.report or {}).get("rows")
    if not rows:
        return ""
    meanings = {
        "read": "passed to a model",
        "applied": "changed the weights",
        "dropped": "changed nothing: too late for their round, or not finite",
        "repeated": "read again after a restart",
        "skipped": "bad rows of the data, left out",
        "left_out": "of the last steps, to keep workers in step",
        "lost": "changed weights of a server that was lost before it could save",
    }
    found = [(name, count, meanings.get(name, "")) for name, count in rows.items()]
    return table(("rows", "count", "meaning"), found, text_from=2)


def notes_table(run: RunView) -> str:
    """Return a table of lost processes, restarts, exceptions and warnings, the latest last."""
    notes = [note for note in run.history.notes.items if note.kind != "job_end"]
    if not notes:
        return ""
    rows = [
        (duration(note.elapsed), note.step, _KINDS.get(note.kind, note.kind), note.text)
        for note in notes
    ]
    left_out = run.history.notes.left_out
    more = f'<p class="soft">{left_out:,} in the middle are left out.</p>' if left_out else ""
    return table(("after", "step", "what", ""), rows, text_from=2) + more


def server_tables(run: RunView) -> Iterator[str]:
    """Yield tables of servers, of their clients, and of embedding tables."""
    served = run.history.served
    servers = [
        (f"server {shard}", *(each.fields.get(name, 0) for name in _SERVER_COUNTS))
        for shard, each in sorted(served.servers.items())
    ]
    if servers:
        yield table(("server", *_SERVER_COUNTS.values()), servers)
    clients = [
        (f"worker {rank}", *(_client_cell(name, each.fields) for name in _CLIENT_COUNTS))
        for rank, each in sorted(served.clients.items())
    ]
    if clients:
        yield table(("client", *_CLIENT_COUNTS.values()), clients)
    tables = [(name, *counts.values()) for name, counts in served.tables().items()]
    if tables:
        yield table(("table", "rows", "bytes", "admitted", "rejected", "evicted"), tables)


_SERVER_COUNTS = {
    "version": "updates",
    "pulls": "pulls",
    "pushes": "pushes",
    "rows_pulled": "rows sent",
    "rows_pushed": "rows received",
    "busy_seconds": "busy s",
}
_CLIENT_COUNTS = {
    "pulls": "pulls",
    "pushes": "pushes",
    "ids_seen": "look-ups",
    "ids_distinct": "ids sent",
    "pull_seconds_p50": "pull p50",
    "pull_seconds_p99": "pull p99",
    "requests_resent": "resent",
}


def _client_cell(name: str, fields: Mapping[str, Any]) -> Any:
    value = fields.get(name, 0)
    return milliseconds(value) if name.startswith("pull_seconds") and value else value
