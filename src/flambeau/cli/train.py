"""`flambeau train`: training of the job in a job file."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flambeau.driver.result import Result


class Resume(StrEnum):
    """Options for a run directory that contains an earlier part of the run."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def train(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[key=value]...",
            help="Settings to change (epochs=5 cluster.local.workers=4) or to remove (~images).",
        ),
    ] = None,
    resume: Annotated[
        Resume | None, typer.Option(help="Whether to resume the run in the run directory.")
    ] = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the run goes.", show_default=False)
    ] = None,
) -> None:
    """Train the model that a job file describes.

    The same command again goes on where the run was stopped.
    """
    from flambeau.config.job_file import load_job_file
    from flambeau.driver.fit import run_file

    given = {"run_dir": run_dir, "resume": resume.value if resume else None}
    job = load_job_file(job_file, overrides or [])
    job = job.model_copy(update={key: value for key, value in given.items() if value is not None})
    try:
        result = run_file(job, job_file.parent)
    except KeyboardInterrupt as error:
        if hasattr(error, "told_by_rank_0"):
            raise
        typer.echo(f"Stopped. Run the same command to resume ({job.run_dir}).", err=True)
        raise typer.Exit(130) from None
    if result.is_driver:
        show_result(result)


def show_result(result: "Result") -> None:
    """Print the final metrics and the location of the results."""
    from flambeau.checkpoint import RunDirectory

    for name, value in result.metrics.items():
        typer.echo(f"{name}: {value:.6g}")
    typer.echo(f"run directory: {result.run_dir}")
    page = RunDirectory(result.run_dir).page
    if page.is_file():
        typer.echo(f"page:          {page}")
    typer.echo(f"curves:        tensorboard --logdir {result.run_dir}/tensorboard")
    typer.echo(f"use it:        flambeau predict {result.run_dir} DATA --out scores.parquet")
