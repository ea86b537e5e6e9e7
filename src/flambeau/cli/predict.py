"""`flambeau predict`: a run's model on new data."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flambeau.cli.given import FormatOption, OptionsOption, RunArgument, open_run, parse_data

if TYPE_CHECKING:
    import pyarrow as pa


def predict(
    run: RunArgument,
    data: Annotated[str, typer.Argument(help="A path, a URL, a glob or module:function.")],
    out: Annotated[Path, typer.Option(help="Where to: a .parquet or .csv file, or a folder.")],
    format: FormatOption = None,
    option: OptionsOption = None,
) -> None:
    """Write the predictions of a run's model: keys, predictions and probabilities by row."""
    from flambeau.inference.predictor import write_predictions
    from flambeau.job.using import predictions

    directory, settings, which = open_run(run)
    given = parse_data(data, format, option or [])
    batches = _watched(predictions(directory, settings, which, given))
    rows = write_predictions(batches, out)
    typer.echo(f"{rows} rows written to {out}")


def _watched(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """The same batches, counted on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    text = TextColumn("{task.completed:,.0f} rows")
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        for batch in batches:
            yield batch
            progress.advance(task, batch.num_rows)
