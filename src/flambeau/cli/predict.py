"""`flambeau predict`: a run's model on new data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from flambeau.cli.given import FormatOption, OptionsOption, RunArgument, open_run, parse_data
from flambeau.config.plural import number_of


def predict(
    run: RunArgument,
    data: Annotated[str, typer.Argument(help="A path, a URL, a glob or module:function.")],
    out: Annotated[Path, typer.Option(help="Where to: a folder, or a .parquet or .csv file.")],
    workers: Annotated[
        int | None, typer.Option(help="Processes that fill a folder; by default one for each core.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows of a batch; by default as in evaluation.")
    ] = None,
    part_rows: Annotated[
        int | None, typer.Option(help="Rows of a file in the folder, about; 262144 by default.")
    ] = None,
    format: FormatOption = None,
    option: OptionsOption = None,
) -> None:
    """Write the predictions of a run's model: keys, labels, predictions and probabilities by row.

    A folder is filled part by part: the same command goes on after it was interrupted.
    """
    from flambeau.checkpoint import resolve
    from flambeau.driver.predict import predict_run
    from flambeau.runs.prediction import PredictionOptions

    directory, settings, which = open_run(run)
    given = parse_data(data, format, option or [])
    options = PredictionOptions(workers, batch_size, part_rows)
    checkpoint = resolve(directory, which).name
    with _counted() as on_rows:
        rows = predict_run(directory, settings, checkpoint, given, out, options, on_rows)
    typer.echo(f"{number_of(rows, 'row')} written to {out}, predicted by {checkpoint}")


@contextmanager
def _counted() -> Iterator[Callable[[int], None]]:
    """Counts rows on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    text = TextColumn("{task.completed:,.0f} rows")
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda rows: progress.advance(task, rows)
