"""`flambeau tables`: the embedding tables of a run, read from a checkpoint."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flambeau.cli.given import RunArgument
from flambeau.cli.text_table import show_table
from flambeau.config.plural import number_of

if TYPE_CHECKING:
    import pyarrow as pa

    from flambeau.tables.saved.mapped import MappedTable

COLUMNS = ("name", "dim", "dtype", "rows", "bytes", "optimizer", "shards")


def tables(
    run: RunArgument,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which; not needed if there is only one.")
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Show the row of an id; may be repeated."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write all rows of a table there: a .parquet file.")
    ] = None,
) -> None:
    """List the embedding tables of a run, show some rows, or export them as ids and vectors."""
    checkpoint = _checkpoint(run)
    found = _open(checkpoint, table)
    ids = [_parse_id(text) for text in id or []]
    if export is not None:
        _require_new(export)
    if ids:
        _show_rows(_only(found), ids)
    if export is not None:
        _export(_only(found), export)
    if not ids and export is None:
        typer.echo(f"{checkpoint.parent.parent} {checkpoint.name}")
        show_table(COLUMNS, [_facts(name, each) for name, each in found.items()])


def _checkpoint(reference: str) -> Path:
    from flambeau.checkpoint import RunDirectory, parse_reference, resolve
    from flambeau.errors import RunDirectoryError

    path, which = parse_reference(reference)
    run = RunDirectory(path)
    if not run.job_file.is_file():
        raise RunDirectoryError(f"{path} is not a run directory: it has no job.yaml")
    return resolve(run, which)


def _open(checkpoint: Path, name: str | None) -> "dict[str, MappedTable]":
    """Open the table `name` of a checkpoint, or all tables if it is None."""
    from flambeau.config.settings import nearest
    from flambeau.errors import ConfigError
    from flambeau.tables.saved.mapped import open_tables

    found = open_tables(checkpoint)
    if not found:
        raise ConfigError(f"{checkpoint} has no tables: its model has no embeddings on servers")
    if name is None:
        return found
    if name not in found:
        raise ConfigError(f"{checkpoint} has no table '{name}'; {nearest(name, found)}")
    return {name: found[name]}


def _only(found: "Mapping[str, MappedTable]") -> "MappedTable":
    from flambeau.errors import ConfigError

    if len(found) > 1:
        raise ConfigError(f"say which table with --table: {', '.join(sorted(found))}")
    (table,) = found.values()
    return table


def _parse_id(text: str) -> int:
    from flambeau.errors import ConfigError

    number = int(text) if re.fullmatch(r"[-+]?\d+", text) else None
    if number is None or not -(1 << 63) <= number < 1 << 63:
        raise ConfigError(f"--id {text}: an id is a whole number from -2^63 to 2^63 - 1")
    return number


def _require_new(out: Path) -> None:
    from flambeau.errors import ConfigError

    if out.suffix != ".parquet":
        raise ConfigError(f"--export {out}: use a name that ends in .parquet")
    if out.exists():
        raise ConfigError(f"--export {out}: it exists already; remove it, or use another name")


def _facts(name: str, table: "MappedTable") -> tuple[str, ...]:
    spec = table.spec
    optimizer = spec.optimizer.name if spec.optimizer else "-"
    sizes = (str(len(table)), str(table.nbytes))
    return (name, str(spec.dim), spec.dtype, *sizes, optimizer, str(len(table.layers[0])))


def _show_rows(table: "MappedTable", ids: list[int]) -> None:
    import numpy as np

    wanted = np.array(ids, np.int64)
    shown = zip(ids, table.has(wanted), table.pull(wanted), strict=True)
    for number, there, row in shown:
        note = "" if there else "no row; the default is used: "
        typer.echo(f"{number}: {note}{' '.join(f'{value:.6g}' for value in row)}")


def _export(table: "MappedTable", out: Path) -> None:
    from flambeau.tables.saved.table_export import vectors, write_vectors

    rows = write_vectors(table.spec, _watched(vectors(table), len(table)), out)
    typer.echo(f"{number_of(rows, 'row')} written to {out}")


def _watched(batches: "Iterator[pa.RecordBatch]", rows: int) -> "Iterator[pa.RecordBatch]":
    """Yield the same batches, with a progress bar on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("rows", total=rows)
        for batch in batches:
            yield batch
            progress.advance(task, batch.num_rows)
