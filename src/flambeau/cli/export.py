"""`flambeau export`: export of a run's model to a folder that other programs can read."""

from pathlib import Path
from typing import Annotated

import typer

from flambeau.cli.given import OptionsOption, RunArgument, open_run, parse_data
from flambeau.config.plural import number_of


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    format: Annotated[
        str, typer.Option(help="Of the graph: pt2, onnx, torch or torchscript.")
    ] = "pt2",
    tables: Annotated[str, typer.Option(help="How rows are stored: fp32, bf16, int8.")] = "fp32",
    inside_mb: Annotated[
        float, typer.Option(help="Tables up to this size, together, go into the graph.")
    ] = 64.0,
    since: Annotated[
        str | None, typer.Option(help="An export or a run: write only what changed since.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Rows like those it was trained with; by default the training data."),
    ] = None,
    option: OptionsOption = None,
) -> None:
    """Export a checkpoint: the graph, the tables apart, and how columns meet them."""
    from flambeau.inference.export import ExportOptions

    options = ExportOptions(format, tables, inside_mb)
    directory, settings, which = open_run(run)
    from flambeau.checkpoint import resolve
    from flambeau.runs.run_export import export_run

    checkpoint = resolve(directory, which).name
    given = None if data is None else parse_data(data, None, option or [])
    made = export_run(directory, settings, checkpoint, out, options, since, given)
    rows = sum(table.rows for table in made.tables.values())
    removed = sum(table.removed for table in made.tables.values())
    graph = made.graph.file if made.graph_here else "no graph (it has not changed)"
    left = f", {removed} removed" if since else ""
    typer.echo(
        f"{graph} and {number_of(rows, 'row')} of {number_of(len(made.tables), 'table')}{left} "
        f"of {checkpoint} written to {out}"
    )
