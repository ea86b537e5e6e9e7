"""`flambeau demo`: from a click log to predictions and an exported model in about two minutes."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flambeau.checkpoint.new_run import claim_directory
from flambeau.config.plural import number_of

if TYPE_CHECKING:
    from flambeau.data.generated import Truth
    from flambeau.driver.result import Result

ROWS = 1_000_000
IDS = 20_000
DAYS = 7
#: Largest acceptable difference between the demo's AUC and the best reachable AUC.
WITHIN = 0.03

JOB: dict[str, Any] = {
    "model": "deepfm",
    "args": {
        "fields": 26,
        "dense": 13,
        "embedding_dim": 16,
        "hidden": [256, 128],
        "table": {"initializer": {"kind": "uniform", "scale": 0.01}},
    },
    "inputs": {"ids": "C1:C26", "dense": "I1:I13"},
    "label": "label",
    "loss": "bce",
    "optimizer": {"name": "adam", "lr": 1e-3},
    "table_optimizer": {"name": "adagrad", "lr": 0.02},
    "metrics": ["auc", "logloss"],
    "batch_size": 512,
    "strategy": {"parameter_server": {"consistency": "asynchronous", "servers": 1}},
    "cluster": {"local": {"workers": 2}},
    "checkpoints": {"keep": 1, "best": "auc"},
}


def demo(
    run_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where everything goes.")] = Path(
        "runs/demo"
    ),
    rows: Annotated[int, typer.Option(help="Clicks to generate.", min=1_000)] = ROWS,
) -> None:
    """Generate a click log, train DeepFM on it with two workers and a server, predict, export."""
    folder = claim_directory(run_dir)
    typer.echo(f"Generating {rows:,} clicks of {DAYS} days in {folder / 'clicks'}")
    truth = _generate(folder / "clicks", rows)
    typer.echo(f"Training on {DAYS - 1} days with 2 workers and a server in {folder / 'run'}")
    result = _train(folder)
    typer.echo("Predicting the last day, and exporting the model")
    last_day = folder / "clicks" / f"day_{DAYS - 1}.tsv"
    predicted = result.predict(last_day, out=folder / "scores")
    result.export(folder / "export")
    best = truth.by_day[-1]["click"].auc or 0.0
    _show(folder, result, best, predicted)
    raise typer.Exit(rows >= ROWS and result.metrics["auc"] < best - WITHIN)


def _generate(folder: Path, rows: int) -> "Truth":
    from flambeau.data.generated import generate_clicks

    return generate_clicks(folder, rows=rows, ids=IDS, days=DAYS)


def _train(folder: Path) -> "Result":
    from flambeau.config.job_file import JobFile
    from flambeau.driver.fit import run_file

    days = [str(folder / "clicks" / f"day_{day}.tsv") for day in range(DAYS)]
    job = JobFile.parse(
        {
            **JOB,
            "train": {"path": days[:-1], "format": "criteo"},
            "valid": {"path": days[-1:], "format": "criteo"},
            "run_dir": str(folder / "run"),
        }
    )
    return run_file(job, Path.cwd())


def _show(folder: Path, result: "Result", best: float, predicted: int) -> None:
    from rich.console import Console
    from rich.table import Table

    auc, report = result.metrics["auc"], result.report
    table = Table("", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("training", f"{_rows_per_second(result):,.0f} rows/s, 2 workers and a server")
    table.add_row("AUC of the last day", f"{auc:.4f}; the best reachable is {best:.4f}")
    table.add_row("tables", ", ".join(_tables(report)))
    table.add_row("predictions", f"{predicted:,} rows in {folder / 'scores'}")
    table.add_row("the model", f"{folder / 'export'}: to serve it, docs/guide/serving.md")
    Console().print(table)
    typer.echo("Next:")
    typer.echo(f"  tensorboard --logdir {folder / 'run' / 'tensorboard'}")
    typer.echo(f"  flambeau tables {folder / 'run'}")
    typer.echo("  docs/guide/recommenders.md: another model, and your own click logs")


def _rows_per_second(result: "Result") -> float:
    return float(result.report["rows"]["applied"]) / float(result.report["seconds"])


def _tables(report: dict[str, Any]) -> Iterable[str]:
    from flambeau.observe.server_stats import tables_in

    for name, counters in tables_in(report["servers"].values()).items():
        yield f"{name} with {number_of(counters['rows'], 'row')}"
