"""`flambeau predict`: predictions of a run's model on new data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from flambeau.cli.given import (
    ClusterOption,
    FormatOption,
    HostsOption,
    OptionsOption,
    is_driver,
    is_export_place,
    open_run,
    parse_cluster,
    parse_data,
)
from flambeau.config.plural import number_of


def predict(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN[@best]|EXPORT", help="A run directory, or an export of one."),
    ],
    data: Annotated[str, typer.Argument(help="A path, a URL, a glob or module:function.")],
    out: Annotated[Path, typer.Option(help="Where to: a folder, or a .parquet or .csv file.")],
    workers: Annotated[
        int | None, typer.Option(help="Processes that fill a folder; by default one for each core.")
    ] = None,
    cluster: ClusterOption = None,
    hosts: HostsOption = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows of a batch; by default as in evaluation.")
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option(help="Rows of a file in the folder, about; 262144 by default.")
    ] = None,
    format: FormatOption = None,
    option: OptionsOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Use an export that runs code of its author.")
    ] = False,
) -> None:
    """Write the predictions of a model: keys, labels, predictions and probabilities by row.

    A folder is filled part by part: run the same command again to resume.
    """
    from flambeau.checkpoint import resolve
    from flambeau.driver.parts.predict import predict_run
    from flambeau.runs.prediction import PredictionOptions

    if is_export_place(Path(run)):
        data_given, options = (
            parse_data(data, format, option or []),
            PredictionOptions(workers, batch_size, part_rows),
        )
        _predict_export(
            run, data_given, out, options, parse_cluster(cluster, workers, hosts), trust
        )
        return
    directory, settings, which = open_run(run)
    given = parse_data(data, format, option or [])
    options = PredictionOptions(workers, batch_size, part_rows)
    checkpoint = resolve(directory, which).name
    with _counted() as on_rows:
        where = parse_cluster(cluster, workers, hosts)
        rows = predict_run(directory, settings, checkpoint, given, out, options, on_rows, where)
    if is_driver(where):
        typer.echo(f"{number_of(rows, 'row')} written to {out}, predicted by {checkpoint}")


def _predict_export(
    place: str, data: Any, out: Path, options: Any, cluster: Any, trust: bool
) -> None:
    from flambeau.driver.parts.predict_export import predict_export

    with _counted() as on_rows:
        rows = predict_export(place, data, out, options, on_rows, cluster, trust=trust)
    if is_driver(cluster):
        typer.echo(f"{number_of(rows, 'row')} written to {out}, predicted by {place}")


@contextmanager
def _counted() -> Iterator[Callable[[int], None]]:
    """Count rows on stderr if that is a terminal; yield a function that adds to the count."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    text = TextColumn("{task.completed:,.0f} rows")
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda rows: progress.advance(task, rows)
