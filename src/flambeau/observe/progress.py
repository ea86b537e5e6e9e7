"""The display of a run: one progress bar for the whole job, or plain lines.

Everything goes to stderr, so that a program's own output stays clean. Times are those of events.
"""

import sys
from collections.abc import Iterator
from typing import Any, Literal, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from flambeau.config.plural import number_of
from flambeau.observe.event import Event, Observer
from flambeau.observe.server_stats import Shards


def display(
    mode: Literal["auto", "bar", "lines", "none"],
    every_seconds: float,
    console: Console | None = None,
) -> Observer:
    """Return an observer that shows a run on `console` (stderr by default).

    `auto` is a bar on a terminal and otherwise, as in notebooks and files, a line of progress
    every `every_seconds`. `none` shows only the output of the user's code.
    """
    # Rich's output for notebooks would not go to stderr.
    console = console or Console(stderr=True, force_jupyter=False)
    if mode == "none":
        return _Output(console)
    if mode == "bar" or (mode == "auto" and can_redraw(console)):
        return _Bar(console)
    return _Lines(console, every_seconds)


def can_redraw(console: Console) -> bool:
    # Not `console.is_terminal`: FORCE_COLOR, which notebooks and CI systems set, makes that true.
    return console.file.isatty() and not console.is_dumb_terminal


@final
class _Output(Observer):
    """A display of only the output of a run's processes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def observe(self, event: Event) -> None:
        if event.kind == "log":
            _print_message(self._console, event)

    def close(self) -> None:
        """Do nothing: the console belongs to the caller."""


@final
class _Lines(Observer):
    def __init__(self, console: Console, every_seconds: float) -> None:
        self._console = console
        self._every_seconds = every_seconds
        self._last_shown = float("-inf")
        self._unshown: Event | None = None
        self._epochs: int | None = None
        self._shards = Shards()

    def observe(self, event: Event) -> None:
        match event.kind:
            case "progress":
                self._unshown = event
                if event.time - self._last_shown >= self._every_seconds:
                    self._show_progress()
                return
            case "job_start":
                self._epochs = event.fields["epochs"]
            case "server":
                self._shards.add(event)
            case "job_end":
                self._show_progress()
        _print_message(self._console, event)

    def close(self) -> None:
        """Do nothing: the console belongs to the caller."""

    def _show_progress(self) -> None:
        if self._unshown is not None:
            line = _progress(self._unshown.fields, self._epochs, "loss", "lr")
            line += _servers(self._shards)
            _print(self._console, Text(line))
            self._last_shown = self._unshown.time
            self._unshown = None


@final
class _Bar(Observer):
    def __init__(self, console: Console) -> None:
        self._console = console
        self._now = 0.0
        self._status = ""
        self._metrics = ""
        self._epochs: int | None = None
        self._shards = Shards()
        self._progress = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.fields[status]}", markup=False, table_column=Column(ratio=1)),
            TimeRemainingColumn(),
            console=console,
            expand=True,
            refresh_per_second=4,
            get_time=lambda: self._now,
            # The program's own output stays above the bar, unless it goes to a file.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=None, start=False, status="starting")

    def observe(self, event: Event) -> None:
        self._now = event.time
        match event.kind:
            case "job_start":
                _print_message(self._console, event)
                self._start(event.fields)
            case "progress":
                self._advance(event.fields)
            case "server":
                self._shards.add(event)
            case "evaluation":
                self._metrics = _valid(event.fields["metrics"])
                self._show_status()
            case "job_end":
                self.close()
                _print_message(self._console, event)
            case _:
                _print_message(self._console, event)

    def close(self) -> None:
        if self._progress.live.is_started:
            self._progress.stop()

    def _start(self, job: dict[str, Any]) -> None:
        self._epochs = job["epochs"]
        self._progress.update(
            self._task, total=job["steps_total"], completed=job["resumed_step"] or 0
        )
        self._progress.start_task(self._task)
        self._progress.start()

    def _advance(self, fields: dict[str, Any]) -> None:
        self._progress.update(self._task, total=fields["steps_total"], completed=fields["step"])
        self._status = _progress(fields, self._epochs, "loss") + _servers(self._shards)
        self._show_status()

    def _show_status(self) -> None:
        self._progress.update(self._task, status=f"{self._status}  {self._metrics}".strip())


def _progress(fields: dict[str, Any], epochs: int | None, *numbers: str) -> str:
    """Return `step 120/900  epoch 2/3  12,345 rows/s` and the fields named in `numbers`.

    Epochs are shown from 1; events count them from 0.
    """
    total = "" if fields["steps_total"] is None else f"/{fields['steps_total']}"
    whole = "" if epochs is None else f"/{epochs}"
    line = f"step {fields['step']}{total}  epoch {fields['epoch'] + 1}{whole}"
    if fields["rows_per_second"] is not None:
        line += f"  {fields['rows_per_second']:,.0f} rows/s"
    return line + _numbers({name: fields[name] for name in numbers})


def _servers(shards: Shards) -> str:
    """Return `2 servers, staleness 1.3`; empty until servers have reported."""
    if not shards.count:
        return ""
    late = "" if shards.staleness is None else f", staleness {shards.staleness:.1f}"
    return f"  {number_of(shards.count, 'server')}{late}"


def _valid(metrics: dict[str, Any]) -> str:
    return f"valid:{_numbers(metrics)[1:]}"


def _numbers(named: dict[str, Any]) -> str:
    return "".join(f"  {name} {value:.4g}" for name, value in named.items() if value is not None)


#: The largest number of agents' places that are named in a line.
MOST_PLACES = 8
_STYLES = {"warning": "yellow", "worker_lost": "red", "restart": "yellow"}


def _print_message(console: Console, event: Event) -> None:
    """Print the messages of an event; most kinds of events have none."""
    style = "red" if event.fields.get("status") == "failed" else _STYLES.get(event.kind, "")
    for line in _message(event.kind, event.fields):
        _print(console, Text(line, style) if isinstance(line, str) else line)


def _print(console: Console, line: Text) -> None:
    # The style is that of the line alone: one given to `print` would colour the bar as well.
    console.print(line, highlight=False, soft_wrap=True)


def _message(kind: str, fields: dict[str, Any]) -> Iterator[str | Text]:
    match kind:
        case "places":
            yield _places(fields["places"])
        case "job_start":
            yield from _job_start(fields)
        case "evaluation":
            yield f"step {fields['step']}  {_valid(fields['metrics'])}"
        case "log":
            for line in fields["text"].splitlines():
                yield Text(f"[{_who(fields)}] ") + Text.from_ansi(line)
        case "warning":
            yield f"warning: {fields['text']}"
        case "worker_lost":
            how = "failed" if fields.get("cause") == "exception" else "lost"
            yield f"{_who(fields)} {how}: {fields['reason']}"
        case "restart":
            when = f" in {fields['delay']:.0f} s" if fields.get("delay") else ""
            yield f"{_what_starts(fields)}{when}: {fields['reason']}"
        case "job_end":
            yield _job_end(fields)


def _places(places: dict[str, dict[str, Any]]) -> str:
    ways: dict[str, list[str]] = {}
    for name, place in places.items():
        ways.setdefault(place["reaches_driver"], []).append(name)
    parts = (f"{_listed(names)} (connected {way})" for way, names in ways.items())
    return f"on {' and '.join(parts)}"


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_PLACES
    return ", ".join(names[:MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def _what_starts(fields: dict[str, Any]) -> str:
    if "rank" in fields:
        return f"{_who(fields)} starts again"
    if "agents" not in fields:
        return f"restart as generation {fields['generation']}"
    numbers = ", ".join(map(str, fields["agents"]))
    one = len(fields["agents"]) == 1
    return f"agent {numbers} starts again" if one else f"agents {numbers} start again"


def _who(fields: dict[str, Any]) -> str:
    return f"{fields.get('role', 'worker')} {fields['rank']}"


def _job_start(job: dict[str, Any]) -> Iterator[str]:
    yield f"run {job['name']}: a step has {_rows_of_a_step(job)}, {job['run_dir']}"
    if job["resumed_step"]:
        yield f"resuming from step {job['resumed_step']}"


def _rows_of_a_step(job: dict[str, Any]) -> str:
    """Return which rows an update is computed from; this depends on the strategy."""
    size, workers, together = job["batch_size"], job["workers"], job["global_batch"]
    if workers == 1:
        return f"{number_of(size, 'row')}, 1 worker"
    if together == size:
        return f"{number_of(size, 'row')} of one of {workers} workers, which update separately"
    return f"{number_of(together, 'row')}, {size:,} from each of {workers} workers"


def _job_end(end: dict[str, Any]) -> str:
    # The error itself is raised after this, and shown by the code that catches it.
    return f"{end['status']} at step {end['step']}" + _numbers(end["metrics"] or {})
