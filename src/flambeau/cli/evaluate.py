"""`flambeau evaluate`: metrics of a run's checkpoints."""

import json
from typing import Annotated, Any

import typer

from flambeau.cli.given import (
    ClusterOption,
    FormatOption,
    HostsOption,
    OptionsOption,
    RunArgument,
    is_driver,
    open_run,
    parse_cluster,
    parse_data,
)
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError


def evaluate(
    run: RunArgument,
    data: Annotated[
        str | None,
        typer.Argument(
            help="A path, URL, glob or module:function; by default the validation data."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="A metric; may be repeated. By default the job's.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Evaluate each checkpoint as it comes.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that share the data, with the same result; 1 unless given."),
    ] = None,
    cluster: ClusterOption = None,
    hosts: HostsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    format: FormatOption = None,
    option: OptionsOption = None,
) -> None:
    """Evaluate a checkpoint of a run, by default its best, on this machine."""
    if follow and ((workers or 1) > 1 or cluster is not None):
        raise ConfigError("--follow evaluates in one process; leave out --workers and --cluster")
    if follow:
        from flambeau.checkpoint import parse_reference
        from flambeau.cli.follow import wait_for_run

        wait_for_run(parse_reference(run)[0])
    directory, settings, which = open_run(run)
    given = parse_data(data, format, option or []) if data is not None else None
    names = tuple(metric or settings.metrics)
    if follow:
        from flambeau.cli.follow import follow_run

        follow_run(directory, settings, given, names if metric else None)
        return
    from flambeau.checkpoint import resolve
    from flambeau.driver.parts.evaluate import evaluate_run

    checkpoint = resolve(directory, which).name
    where = parse_cluster(cluster, workers, hosts)
    scores = evaluate_run(directory, settings, checkpoint, given, names, workers, where)
    if not is_driver(where):
        return
    found = {"run": str(directory.path), "checkpoint": checkpoint, "rows": scores.rows}
    show(found, scores.metrics, as_json=as_json)


def show(found: dict[str, Any], metrics: dict[str, float], *, as_json: bool) -> None:
    """Print the evaluated run and checkpoint, and the metrics."""
    if as_json:
        typer.echo(json.dumps({**found, "metrics": metrics}))
        return
    from rich.console import Console
    from rich.table import Table

    typer.echo(f"{found['run']} {found['checkpoint']}, {number_of(found['rows'], 'row')}")
    table = Table("metric", "value")
    for name, value in metrics.items():
        table.add_row(name, f"{value:.6g}")
    Console().print(table)
