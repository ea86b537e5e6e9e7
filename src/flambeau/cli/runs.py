"""`flambeau runs` and `flambeau diff`: list of runs, and differences between two of them."""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flambeau.cli.text_table import as_text, show_table

if TYPE_CHECKING:
    from flambeau.reports.run_view import RunView


class Column(StrEnum):
    """Columns that `flambeau runs` can sort by."""

    NAME = "name"
    STATUS = "status"
    STEP = "step"
    METRIC = "metric"
    SPEED = "speed"
    WHEN = "when"


COLUMNS = (
    "name",
    "model",
    "strategy",
    "cluster",
    "workers",
    "status",
    "step",
    "metric",
    "value",
    "rows/s",
    "when",
)


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where the runs are.", show_default=False)
    ] = Path("runs"),
    sort: Annotated[Column, typer.Option(help="By what; the best metric comes first.")] = (
        Column.WHEN
    ),
    metric: Annotated[
        str | None, typer.Option(help="Show this metric, and not the one that marks the best.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="key=value",
            help="Only runs with this status, model, strategy or setting (optimizer.name=adam); "
            "may be repeated. * stands for any text.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a run.")] = False,
) -> None:
    """List the runs in a folder and the folders in it."""
    from flambeau.reports.run_view import find_runs, open_run

    conditions = [_condition(text) for text in where or []]
    found = [open_run(path) for path in find_runs(folder)]
    found = [run for run in found if all(condition(run) for condition in conditions)]
    facts = sorted((_facts(run, metric) for run in found), key=_order(sort))
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    elif facts:
        show_table(COLUMNS, [_row(each) for each in facts])
    else:
        typer.echo(f"no run in {folder}{' is like that' if conditions else ''}", err=True)


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run directory.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which settings of two runs differ, and what came out of each."""
    from flambeau.reports.comparison import result_lines, settings_lines
    from flambeau.reports.run_view import open_run

    both = [open_run(path) for path in (a, b)]
    settings, results = settings_lines(both), result_lines(both)
    if as_json:
        typer.echo(json.dumps({"settings": settings, "results": results}, indent=1))
        return
    _show_lines("setting", both, settings)
    if not settings:
        typer.echo("all settings are the same")
    typer.echo("")
    _show_lines("result", both, results)


def _show_lines(title: str, both: "Sequence[RunView]", lines: dict[str, list[Any]]) -> None:
    rows = [(name, *map(as_text, values)) for name, values in lines.items()]
    if rows:
        show_table((title, *(str(run.directory.path) for run in both)), rows)


def _condition(text: str) -> "Callable[[RunView], bool]":
    from fnmatch import fnmatchcase

    from flambeau.errors import ConfigError

    name, sign, pattern = text.partition("=")
    if not sign:
        raise ConfigError(f"--where {text}: write key=value, such as status=failed")

    def holds(run: "RunView") -> bool:
        own = {"status": run.status, "model": run.model, "cluster": run.cluster, "name": run.name}
        value = own.get(name, run.flat_settings.get(name))
        if name == "strategy":
            value = (run.settings.get("strategy") or {}).get("kind", "all_reduce")
        return fnmatchcase(str(value), pattern) or (value is None and pattern == "null")

    return holds


def _facts(run: "RunView", metric: str | None) -> dict[str, Any]:
    name, value = metric, None
    if metric is not None:
        value = run.metrics.get(metric)
    elif run.best is not None:
        name, value = run.best.metric, run.best.value
    return {
        "name": run.name,
        "path": str(run.directory.path),
        "model": run.model,
        "strategy": run.strategy,
        "cluster": run.cluster,
        "workers": run.workers,
        "status": run.status,
        "step": run.step,
        "metric": name,
        "value": value,
        "rows_per_second": run.rows_per_second,
        "time": run.latest_time,
    }


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    from flambeau.reports.comparison import moment

    names = ("name", "model", "strategy", "cluster", "workers", "status", "step", "metric", "value")
    cells = [as_text(facts[name]) for name in (*names, "rows_per_second")]
    return (*cells, moment(facts["time"]))


def _order(column: Column) -> Callable[[dict[str, Any]], Any]:
    """Return the sort key of a column: the newest, fastest and best runs come first."""
    keys: dict[Column, Callable[[dict[str, Any]], Any]] = {
        Column.NAME: lambda run: run["path"],
        Column.STATUS: lambda run: (run["status"], run["path"]),
        Column.STEP: lambda run: -run["step"],
        Column.METRIC: _metric_order,
        Column.SPEED: lambda run: -(run["rows_per_second"] or 0.0),
        Column.WHEN: lambda run: -run["time"],
    }
    return keys[column]


def _metric_order(run: dict[str, Any]) -> tuple[bool, str, float]:
    """Return a sort key that groups runs by metric, the best one first."""
    if run["value"] is None:
        return (True, "", 0.0)
    if run["metric"].split("/")[-1] == "calibration":
        return (False, run["metric"], abs(run["value"] - 1.0))
    from flambeau.training.best import is_higher_better

    sign = -1.0 if is_higher_better(run["metric"]) else 1.0
    return (False, run["metric"], sign * run["value"])
