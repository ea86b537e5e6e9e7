"""The HTML page of a run, or of several runs that are compared.

All names, messages and settings on it come from users, and are escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from flambeau.reports import chart, tables, timeline
from flambeau.reports.chart import Line, scaled
from flambeau.reports.comparison import duration, moment, result_lines, settings_lines
from flambeau.reports.document import document
from flambeau.reports.drawing import number
from flambeau.reports.page_script import CURSOR, LIVE
from flambeau.reports.points import Points
from flambeau.reports.run_view import RunView
from flambeau.reports.run_words import advice, next_commands, sentences
from flambeau.reports.server_record import LatestCounts

_STYLE = (
    chart.STYLE
    + tables.STYLE
    + timeline.STYLE
    + """
.lead { font-size: 1.05rem; max-width: 60rem; overflow-wrap: anywhere; }
.tiles { display: grid; gap: .6rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
.tile { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .7rem; min-width: 0; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.tile span { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.choice { position: absolute; opacity: 0; }
.choices { display: inline-flex; gap: .4rem; margin: .6rem 0; }
.choices label { border: 1px solid var(--line); border-radius: 1rem; padding: .15rem .8rem;
  cursor: pointer; font-size: 13px; }
#by-step:checked ~ .choices label[for=by-step], #by-time:checked ~ .choices label[for=by-time] {
  background: var(--text); color: var(--ground); }
#by-step:focus-visible ~ .choices label[for=by-step],
#by-time:focus-visible ~ .choices label[for=by-time] { outline: 2px solid var(--focus); }
#by-step:checked ~ main .by-time, #by-time:checked ~ main .by-step { display: none; }
#connection { font-size: 13px; color: var(--soft); margin-left: .6rem; }
code { overflow-wrap: anywhere; background: var(--card); padding: .1rem .3rem;
  border-radius: .2rem; }
li { margin: .2rem 0; } main > h3, h2 + h3 { margin: 1.2rem 0 .4rem; }
"""
)
#: Most servers, and most workers, that have their own line.
_LINES = 7
#: Most metrics, and most scalars, that have a chart; the others are only named.
_PICTURES = 24


def run_page(runs: Sequence[RunView], *, live: bool = False) -> str:
    """Return the page of a run, or of several; a `live` one is kept up to date by its server."""
    title = ", ".join(run.name for run in runs)
    connection = '<span id="connection" role="status"></span>' if live else ""
    body = (
        '<input class="choice" type="radio" name="along" id="by-step" checked>'
        '<input class="choice" type="radio" name="along" id="by-time">'
        f"<h1>{escape(title)}</h1>"
        '<div class="choices"><label for="by-step">by step</label>'
        f'<label for="by-time">by time</label></div>{connection}\n'
        f"<main>{main_part(runs)}</main>\n"
    )
    script = CURSOR + LIVE if live else CURSOR
    return document(title, body, style=_STYLE, script=script, live=live)


def main_part(runs: Sequence[RunView]) -> str:
    """Return the part of the page that changes while a run is live."""
    return "\n".join(_one(runs[0]) if len(runs) == 1 else _several(runs))


def _one(run: RunView) -> Iterator[str]:
    yield f'<p class="lead">{escape(sentences(run))}</p>'
    yield _tiles(run)
    yield from _advice(run)
    yield _cards("Training", _training([run]))
    yield from _when(run)
    yield from _section("Messages", tables.notes_table(run))
    yield from _served(run)
    yield from _section("Rows", tables.rows_table(run))
    yield from _asked(run)
    yield from _next(run)


def _several(runs: Sequence[RunView]) -> Iterator[str]:
    names = _names(runs)
    for name, run in zip(names, runs, strict=True):
        yield f'<p class="lead"><b>{escape(name)}</b>: {escape(sentences(run))}</p>'
    yield from _section("Results", tables.lines_table("", names, result_lines(runs)))
    differing = settings_lines(runs)
    same = '<p class="soft">All settings are the same.</p>'
    lines = tables.lines_table("", names, differing) if differing else same
    yield from _section("Settings that differ", lines)
    yield _cards("Training", _training(runs), chart.key(names))
    for name, run in zip(names, runs, strict=True):
        yield f"<h2>{escape(name)}</h2>"
        yield from _advice(run)
        yield from _when(run, "h3")
        yield from _section("Messages", tables.notes_table(run), "h3")


def _names(runs: Sequence[RunView]) -> list[str]:
    """Return a label for each run: its name, or its path if several runs have that name."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else str(run.directory.path)
        for name, run in zip(names, runs, strict=True)
    ]


def _section(title: str, content: str, heading: str = "h2") -> Iterator[str]:
    if content:
        yield f"<{heading}>{title}</{heading}>{content}"


def _cards(title: str, cards: Sequence[str], above: str = "") -> str:
    found = "".join(cards)
    if not found:
        return ""
    return f'<h2>{escape(title)}</h2>{above}<div class="cards">{found}</div>'


def _tiles(run: RunView) -> str:
    history = run.history
    facts: list[tuple[str, str]] = [("status", run.status.replace("_", " "))]
    total = history.progress.steps_total if history.progress else None
    facts.append((f"of {total:,} steps" if total else "steps", f"{run.step:,}"))
    if run.rows_per_second is not None:
        facts.append(("rows/s", number(float(f"{run.rows_per_second:.3g}"))))
    if history.began is not None:
        facts.append(("elapsed time", duration(history.elapsed)))
    loss = history.numbers.thinned("loss")
    if len(loss):
        facts.append(("training loss, last", number(float(loss.means[-1]))))
    facts += [(name, number(value)) for name, value in list(run.metrics.items())[:6]]
    if run.best is not None:
        facts.append((f"best {run.best.metric}, step {run.best.step:,}", number(run.best.value)))
    restarts = (run.report or {}).get("restarts", history.restarts)
    if restarts:
        facts.append(("restarts", str(restarts)))
    tiles = (
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in facts
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _advice(run: RunView) -> Iterator[str]:
    for text in advice(run):
        yield f'<p class="warn">{escape(text)}</p>'


def _training(runs: Sequence[RunView]) -> list[str]:
    """Return charts of loss, metrics, speed, learning rate, step time and the user's scalars."""
    names = _names(runs)

    def lines(series: str) -> list[Line]:
        found = (run.history.numbers.thinned(series) for run in runs)
        return [
            Line(name, points, k) for k, (name, points) in enumerate(zip(names, found, strict=True))
        ]

    cards = [
        chart.chart(
            "Training loss",
            "mean over the rows since the last point",
            lines("loss"),
            may_be_log=True,
        )
    ]
    metrics = dict.fromkeys(name for run in runs for name in run.history.metrics)
    cards += [
        _named(runs, names, name, "evaluation", "metrics") for name in list(metrics)[:_PICTURES]
    ]
    cards.append(chart.chart("Speed", "rows per second, all workers", lines("rows_per_second")))
    cards.append(chart.chart("Learning rate", "", lines("lr")))
    if len(runs) == 1:
        cards.append(_step_times(runs[0]))
    own = dict.fromkeys(name for run in runs for name in run.history.scalars)
    cards += [_named(runs, names, name, "your own", "scalars") for name in list(own)[:_PICTURES]]
    left = [*list(metrics)[_PICTURES:], *list(own)[_PICTURES:]]
    if left:
        cards.append(f"<article><p>Without a picture: {escape(', '.join(left))}</p></article>")
    return [card for card in cards if card]


def _named(runs: Sequence[RunView], names: Sequence[str], title: str, unit: str, kind: str) -> str:
    lines = []
    for place, run in enumerate(runs):
        points: Points | None = getattr(run.history, kind).get(title)
        if points is not None:
            lines.append(Line(names[place], points.thinned("value"), place))
    return chart.chart(title, unit, lines)


def _step_times(run: RunView) -> str:
    parts = ("data", "compute", "communication")
    lines = [
        Line(part, scaled(run.history.numbers.thinned(f"{part}_seconds"), 1000.0), place)
        for place, part in enumerate(parts)
    ]
    drawn = chart.chart("Step time", "milliseconds per step", lines, may_be_log=True)
    return drawn.replace("</h3>", f"</h3>{chart.key(parts)}", 1)


def _when(run: RunView, heading: str = "h2") -> Iterator[str]:
    yield from _section("Where the time of a step went", tables.time_bars(run), heading)
    yield from _section("What happened when", timeline.timeline(run.history), heading)


def _served(run: RunView) -> Iterator[str]:
    served = run.history.served
    if not served.servers and not served.clients:
        return
    servers, clients = dict(list(served.servers.items())[:_LINES]), served.clients
    clients = dict(list(clients.items())[:_LINES])
    pushes = _each(servers, "server", "pushes_per_second")
    stale = _each(servers, "server", "staleness_mean")
    slow = _each(clients, "worker", "pull_seconds_p99", 1000.0)
    sizes = served.table_sizes
    cards = [
        chart.chart("Pushes", "per second, by server", pushes),
        chart.chart("Staleness", "updates, mean by server", stale),
        chart.chart("Slow pulls", "milliseconds; 99 of 100 are faster", slow, may_be_log=True),
        chart.chart("Rows of tables", "all tables", [Line("rows", sizes.thinned("rows"), 0)]),
        _memory(sizes),
        tables.staleness_bars(served.staleness()),
    ]
    yield _cards("Servers and tables", [card for card in cards if card])
    yield from tables.server_tables(run)


def _each(
    found: Mapping[int, LatestCounts], what: str, name: str, factor: float = 1.0
) -> list[Line]:
    """Return a line for each server or worker."""
    return [
        Line(f"{what} {number}", scaled(each.points.thinned(name), factor), place)
        for place, (number, each) in enumerate(sorted(found.items()))
    ]


def _memory(sizes: Points) -> str:
    points = sizes.thinned("bytes")
    most = float(points.highs.max()) if len(points) else 0.0
    unit, name = next(((u, n) for u, n in ((1e9, "GB"), (1e6, "MB")) if most >= u), (1e3, "kB"))
    return chart.chart("Memory of tables", name, [Line("bytes", scaled(points, 1 / unit), 0)])


def _asked(run: RunView) -> Iterator[str]:
    report = run.report or {}
    if report.get("versions"):
        facts = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
        yield f"<h2>Where it ran</h2><p>{escape(facts)}</p>"
    started = run.history.started
    if started:
        rows = [(p["host"], p["cores"], ", ".join(p["roles"])) for p in started]
        yield tables.table(("host", "cores", "processes"), rows, text_from=2)
    flat = run.flat_settings
    began = f", begun {moment(run.history.began)}" if run.history.began else ""
    settings = tables.table(("setting", "value"), list(flat.items()), text_from=1)
    yield (
        f'<h2>What was asked</h2><details id="settings"><summary>{len(flat)} settings'
        f"{escape(began)}</summary>{settings}</details>"
    )


def _next(run: RunView) -> Iterator[str]:
    commands = next_commands(run)
    if commands:
        items = "".join(
            f"<li><code>{escape(command)}</code> {escape(what)}</li>" for command, what in commands
        )
        yield f"<h2>What to do next</h2><ul>{items}</ul>"
