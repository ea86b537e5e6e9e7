"""The display of work in stages: a bar for each stage, or plain lines."""

import sys
from typing import Any, Literal, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from flambeau.config.plural import number_of
from flambeau.observe.event import Event, Observer, Observers
from flambeau.observe.progress import can_redraw, display

_GB = 1 << 30
_MB = 1 << 20


def stage_display(
    mode: Literal["auto", "bar", "lines", "none"],
    every_seconds: float,
    console: Console | None = None,
) -> Observer:
    """Return an observer that shows stages and messages of processes on `console` (stderr).

    The modes are those of `display`.
    """
    console = console or Console(stderr=True, force_jupyter=False)
    if mode == "none":
        return display("none", every_seconds, console)
    bar = mode == "bar" or (mode == "auto" and can_redraw(console))
    stages: Observer = _StageBar(console) if bar else _StageLines(console, every_seconds)
    return Observers([stages, display("lines", every_seconds, console)])


def shown_bytes(count: int) -> str:
    """Return a number of bytes for display: `1.2 GB`, `350 MB`."""
    return f"{count / _GB:.1f} GB" if count >= _GB else f"{count / _MB:.0f} MB"


def shown_seconds(seconds: float) -> str:
    """Return a duration for display: `1:02:03`, `2:03`, `12.3 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@final
class _StageLines(Observer):
    """A line for each stage that has ended, and for long ones one every `every_seconds`."""

    def __init__(self, console: Console, every_seconds: float) -> None:
        self._console, self._every_seconds = console, every_seconds
        self._last_shown = float("-inf")

    def observe(self, event: Event) -> None:
        match event.kind:
            case "stage_start":
                self._last_shown = event.time
            case "stage":
                if event.time - self._last_shown >= self._every_seconds:
                    self._last_shown = event.time
                    _print(self._console, _progress_line(event.fields))
            case _:
                for line in _messages(event):
                    _print(self._console, line)

    def close(self) -> None:
        """Do nothing: the console belongs to the caller."""


@final
class _StageBar(Observer):
    """A bar for the current stage, and a line for each that has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._now = 0.0
        self._progress: Progress | None = None

    def observe(self, event: Event) -> None:
        self._now = event.time
        match event.kind:
            case "stage_start":
                self._start(event.fields)
            case "stage":
                self._advance(event.fields)
            case _:
                if event.kind in ("stage_end", "prepared"):
                    self.close()
                for line in _messages(event):
                    _print(self._console, line)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _start(self, fields: dict[str, Any]) -> None:
        self.close()
        self._progress = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.fields[status]}", markup=False, table_column=Column(ratio=1)),
            TimeRemainingColumn(),
            console=self._console,
            expand=True,
            transient=True,
            refresh_per_second=4,
            get_time=lambda: self._now,
            redirect_stdout=sys.stdout.isatty(),
        )
        total = fields["rows_total"] or fields["pieces_total"]
        self._progress.add_task("", total=total, status=_name(fields))
        self._progress.start()

    def _advance(self, fields: dict[str, Any]) -> None:
        if self._progress is not None:
            done = fields["rows"] if fields["rows_total"] else fields["pieces"]
            (task,) = self._progress.task_ids
            self._progress.update(task, completed=done, status=_status(fields))


def _name(fields: dict[str, Any]) -> str:
    return f"{fields['number']}/{fields['stages']} {fields['stage']}"


def _status(fields: dict[str, Any]) -> str:
    """Return `1/3 gather statistics  1,200/5,000 rows  400 rows/s`."""
    if not fields["rows_total"]:
        return f"{_name(fields)}  {fields['pieces']:,}/{fields['pieces_total']:,} parts"
    line = f"{_name(fields)}  {fields['rows']:,}/{number_of(fields['rows_total'], 'row')}"
    speed = fields["rows_per_second"]
    return line if speed is None else f"{line}  {speed:,.0f} rows/s"


def _progress_line(fields: dict[str, Any]) -> str:
    left = fields["seconds_left"]
    return _status(fields) + ("" if left is None else f"  {shown_seconds(left)} left")


def _messages(event: Event) -> list[str]:
    fields = event.fields
    match event.kind:
        case "preparation":
            return _beginning(fields)
        case "stage_end":
            return [f"{_name(fields)}: {_taken(fields)}"]
        case "prepared":
            return _summary(fields)
    return []


def _beginning(fields: dict[str, Any]) -> list[str]:
    lines = [f"preparing {number_of(fields['rows'], 'row')}, {fields['out']}"]
    return [*lines, "resuming what was interrupted"] if fields["resumed"] else lines


def _taken(fields: dict[str, Any]) -> str:
    """Return `5,000 rows in 2.1 s, 2,380 rows/s, 350 MB`; `2.1 s` for a stage without rows."""
    seconds = shown_seconds(fields["seconds"])
    rows = f"{number_of(fields['rows'], 'row')} in " if fields["rows"] else ""
    speed = fields["rows_per_second"]
    parts = [f"{rows}{seconds}"]
    parts += [] if speed is None else [f"{speed:,.0f} rows/s"]
    parts += [shown_bytes(fields["peak_bytes"])] if fields["peak_bytes"] else []
    return ", ".join(parts)


def _summary(fields: dict[str, Any]) -> list[str]:
    subsets = ", ".join(f"{name} {count:,}" for name, count in fields["rows"].items() if count)
    total = sum(fields["rows"].values())
    lines = [f"prepared {_taken({**fields, 'rows': total})}: {subsets}"]
    if fields["sizes"]:
        sizes = ", ".join(f"{name} {size:,}" for name, size in fields["sizes"].items())
        lines.append(f"vocabularies: {sizes}")
    return [*lines, f"files: {fields['out']}"]


def _print(console: Console, line: str) -> None:
    console.print(Text(line), highlight=False, soft_wrap=True)
