"""A run as one frame of a terminal: progress, curves, workers, servers and problems."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flambeau.reports.comparison import duration
from flambeau.reports.drawing import number, percent
from flambeau.reports.plain_text import printable
from flambeau.reports.points import Array, Thinned
from flambeau.reports.run_view import RunView
from flambeau.reports.run_words import sentences
from flambeau.reports.tables import milliseconds

#: Sort keys of workers.
Order = Literal["rank", "time", "wait", "memory"]
ORDERS: tuple[Order, ...] = ("rank", "time", "wait", "memory")

_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE = 48
_MOST_CURVES = 6
_MOST_NOTES = 6
_PARTS = ("data", "dense", "sparse", "wait")
_STYLES = {"worker_lost": "red", "exception": "red", "restart": "yellow", "warning": "yellow"}


def frame(run: RunView, order: Order = "rank", rows: int = 40) -> RenderableType:
    """Return the frame, with at most `rows` workers and half as many servers."""
    title = Text.assemble((printable(run.name), "bold"), f"  {run.status.replace('_', ' ')}")
    parts: list[RenderableType] = [
        Panel(Text(printable(sentences(run))), title=title, title_align="left")
    ]
    parts += [_curves(run), _workers(run, order, rows), _servers(run, rows // 2)]
    parts += _notes(run)
    return Group(*parts)


def sparkline(values: Array, width: int = _CURVE) -> str:
    """Return numbers as a line of blocks, each for the mean of some neighbours."""
    if not len(values):
        return ""
    means = [float(part.mean()) for part in np.array_split(values, min(width, len(values)))]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)


def _curves(run: RunView) -> RenderableType:
    history = run.history
    found: list[tuple[str, Thinned]] = [
        ("training loss", history.numbers.thinned("loss")),
        ("rows/s", history.numbers.thinned("rows_per_second")),
        *((name, points.thinned("value")) for name, points in history.metrics.items()),
    ]
    table = _table("", "last", "", "least", "greatest")
    for name, points in found[:_MOST_CURVES]:
        if len(points):
            ends = (number(float(f"{end:.4g}")) for end in (points.lows.min(), points.highs.max()))
            last = number(float(f"{points.means[-1]:.4g}"))
            table.add_row(Text(printable(name)), last, sparkline(points.means), *ends)
    return table if table.row_count else Text("")


def _workers(run: RunView, order: Order, rows: int) -> RenderableType:
    history = run.history
    hosts = {role: agent["host"] for agent in history.started for role in agent["roles"]}
    workers = sorted(history.workers.items(), key=lambda item: _rank_of(item, order))
    if not workers:
        return Text("")
    table = _table("worker", "host", "steps", "step", *_PARTS, "memory", "p50", "p99")
    for rank, fields in workers[:rows]:
        seconds = fields["seconds_per_step"]
        whole = sum(seconds.values()) or 1.0
        shares = [percent(max(0.0, seconds[part]) / whole) for part in _PARTS]
        client = history.served.clients.get(rank)
        pulls = (
            [] if client is None else [client.fields.get(f"pull_seconds_p{k}") for k in (50, 99)]
        )
        table.add_row(
            str(rank),
            Text(printable(hosts.get(f"worker {rank}", ""))),
            f"{fields['steps']:,}",
            milliseconds(whole),
            *shares,
            _bytes(fields["memory_bytes"]),
            *(milliseconds(seconds) if seconds else "" for seconds in pulls),
        )
    return _with_rest(table, len(workers) - rows, "workers")


def _rank_of(item: tuple[int, dict[str, Any]], order: Order) -> tuple[float, int]:
    rank, fields = item
    seconds = fields["seconds_per_step"]
    keys = {
        "rank": 0.0,
        "time": -sum(seconds.values()),
        "wait": -seconds["wait"],
        "memory": -float(fields["memory_bytes"]),
    }
    return keys[order], rank


def _servers(run: RunView, rows: int) -> RenderableType:
    servers = sorted(run.history.served.servers.items())
    if not servers:
        return Text("")
    table = _table("server", "rows", "bytes", "updates", "pulls/s", "pushes/s", "staleness")
    for shard, each in servers[:rows]:
        rates = (
            _last(each.points.thinned(name))
            for name in ("pulls_per_second", "pushes_per_second", "staleness_mean")
        )
        held = (f"{each.sizes[0]:,}", _bytes(each.sizes[1]), f"{each.fields.get('version', 0):,}")
        table.add_row(str(shard), *held, *rates)
    return _with_rest(table, len(servers) - rows, "servers")


def _notes(run: RunView) -> Iterable[RenderableType]:
    notes = [note for note in run.history.notes.items if note.kind in _STYLES]
    for note in notes[-_MOST_NOTES:]:
        line = f"{duration(note.elapsed)}  {printable(note.text)}"
        yield Text(line, _STYLES[note.kind], overflow="ellipsis", no_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for place, column in enumerate(columns):
        left = place == 0 or column in ("", "host")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _with_rest(table: Table, rest: int, things: str) -> RenderableType:
    return table if rest <= 0 else Group(table, Text(f"and {rest:,} more {things}", "dim"))


def _last(points: Thinned) -> str:
    return f"{points.means[-1]:,.3g}" if len(points) else ""


def _bytes(size: float) -> str:
    units: Sequence[tuple[float, str]] = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next(
        (f"{size / unit:.3g} {name}" for unit, name in units if size >= unit), f"{size:g} B"
    )
