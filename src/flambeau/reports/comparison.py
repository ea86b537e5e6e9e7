"""Differences between runs: settings and results."""

from collections.abc import Callable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from flambeau.reports.run_view import RunView

#: Settings that locate arrays of a process: they differ each time, and mean nothing.
_PLACES = ("*.fd", "*.file", "*.columns.*.path", "*.columns.*.offset", "model.value")

#: Rows of a table: a name, and a value for each run, or None.
Lines = dict[str, list[Any]]


def settings_lines(runs: Sequence[RunView], *, all_settings: bool = False) -> Lines:
    """Return the settings that differ between runs, or all of them."""
    flat = [run.flat_settings for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    lines = {name: [settings.get(name) for settings in flat] for name in names}
    return {
        name: values
        for name, values in lines.items()
        if all_settings or (_differ(values) and not _is_place(name))
    }


def result_lines(runs: Sequence[RunView]) -> Lines:
    """Return the results of each run."""
    lines: Lines = {name: [_result(run) for run in runs] for name, _result in _RESULTS.items()}
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        lines[name] = [run.metrics.get(name) for run in runs]
    return {name: values for name, values in lines.items() if any(v is not None for v in values)}


def _seconds(run: RunView) -> float | None:
    found = (run.report or {}).get("wall_seconds")
    return found if found is not None else run.history.elapsed or None


def _rows(run: RunView) -> int | None:
    rows = (run.report or {}).get("rows")
    if rows is not None:
        return int(rows["applied"])
    return None if run.history.progress is None else run.history.progress.rows


_RESULTS: dict[str, Callable[[RunView], Any]] = {
    "status": lambda run: run.status,
    "steps": lambda run: run.step,
    "rows trained on": _rows,
    "rows/s": lambda run: run.rows_per_second,
    "seconds": _seconds,
    "restarts": lambda run: (run.report or {}).get("restarts", run.history.restarts),
    "best": lambda run: None if run.best is None else run.best.value,
    "step of the best": lambda run: None if run.best is None else run.best.step,
}


def _differ(values: list[Any]) -> bool:
    return any(value != values[0] for value in values[1:])


def _is_place(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _PLACES)


def duration(seconds: float) -> str:
    """Return a time as text in its two largest units: `8.5 s`, `4 min 5 s` or `3 days 2 h`."""
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    whole = round(seconds)
    counts = (whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60)
    units = ("day" if counts[0] == 1 else "days", "h", "min", "s")
    first = next(place for place, count in enumerate(counts) if count)
    parts = zip(counts[first : first + 2], units[first:], strict=False)
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def moment(time: float) -> str:
    """Return a date and time of day in the local time zone."""
    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M")
