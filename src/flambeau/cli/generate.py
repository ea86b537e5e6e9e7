"""`flambeau generate clicks`: data whose best reachable scores are known."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flambeau.config.plural import number_of

if TYPE_CHECKING:
    from flambeau.data.generated import Truth

generate = typer.Typer(
    no_args_is_help=True, help="Generate data of which the best reachable scores are known."
)


@generate.callback()
def _group() -> None:
    """Make `clicks` a subcommand even though it is the only one."""


@generate.command()
def clicks(
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder.")],
    rows: Annotated[int, typer.Option(help="Rows of all days.")] = 1_000_000,
    fields: Annotated[int, typer.Option(help="Columns of ids.")] = 26,
    dense: Annotated[int, typer.Option(help="Columns of numbers.")] = 13,
    ids: Annotated[int, typer.Option(help="Different ids on a day, of all fields.")] = 10_000_000,
    days: Annotated[int, typer.Option(help="A file each.")] = 7,
    seed: Annotated[int, typer.Option(help="Another one is another world.")] = 0,
    format: Annotated[str, typer.Option(help="tsv (as Criteo's logs) or parquet.")] = "tsv",
    labels: Annotated[str, typer.Option(help="click, or click,conversion.")] = "click",
    force: Annotated[bool, typer.Option("--force", help="Replace the log that is there.")] = False,
) -> None:
    """Write a click log drawn from known probabilities, and show the best reachable scores."""
    from flambeau.data.generated import generate_clicks

    names: Any = [name.strip() for name in labels.split(",")]
    kind: Any = format
    with _progress(rows) as advance:
        truth = generate_clicks(
            out,
            rows=rows,
            fields=fields,
            dense=dense,
            ids=ids,
            days=days,
            seed=seed,
            format=kind,
            labels=names,
            force=force,
            progress=advance,
        )
    _show(truth, out)


@contextmanager
def _progress(rows: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if that is a terminal; yield a function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("rows", total=rows)
        yield lambda written: progress.advance(task, written)


def _show(truth: "Truth", out: Path) -> None:
    settings = truth.settings
    typer.echo(
        f"{number_of(settings.rows, 'row')} of {number_of(settings.days, 'day')} written to {out}"
    )
    typer.echo("Best reachable, by the true probabilities:")
    width = max(map(len, truth.overall))
    for task, score in truth.overall.items():
        auc = "-" if score.auc is None else f"{score.auc:.4f}"
        share = score.positives / max(1, score.rows)
        typer.echo(
            f"  {task:<{width}}  auc {auc}  logloss {score.logloss:.4f}  positives {share:.2%}"
        )
    typer.echo(f"By day: {out / 'truth.json'}")
