"""`flambeau evaluate --follow`: evaluation during a training, on this or another machine."""

import threading
import time
from pathlib import Path
from typing import Any

import typer

from flambeau.checkpoint import RunDirectory, checkpoints
from flambeau.config import DatasetData, FileData, JobSettings
from flambeau.errors import CheckpointError, DataError
from flambeau.observe import (
    Event,
    EventLog,
    Observer,
    Observers,
    TensorBoardScalars,
    display,
)
from flambeau.runs.follower import POLL_SECONDS, Follower
from flambeau.runs.trained_run import require_reopenable


def follow_run(
    run: RunDirectory,
    settings: JobSettings,
    data: FileData | DatasetData | None,
    metrics: tuple[str, ...] | None,
) -> None:
    """Evaluate every checkpoint until the run has ended.

    Evaluations with the job's own data and metrics are added to the run's events.
    """
    own = data is None and metrics is None
    given = {"valid": data, "metrics": metrics}
    settings = settings.model_copy(update={k: v for k, v in given.items() if v is not None})
    if settings.valid is None:
        raise DataError("the job has no validation data; give the data to evaluate on")
    require_reopenable(settings)
    if not _wait_for_first(run):
        raise CheckpointError(f"{run.path} ended before its first checkpoint")
    observer = _observers(run, own=own)

    def report(kind: str, **fields: Any) -> None:
        observer.observe(Event(kind, time.time(), fields))

    try:
        Follower(run, settings, report, own=own).follow(_ended(run))
    finally:
        observer.close()


def wait_for_run(path: Path) -> None:
    """Wait until there is a run at `path`."""
    run, pause = RunDirectory(path), threading.Event()
    if not run.job_file.exists():
        typer.echo(f"waiting for a run in {path} (Ctrl-C ends this)", err=True)
    while not run.job_file.exists():
        pause.wait(POLL_SECONDS)


def _wait_for_first(run: RunDirectory) -> bool:
    """Wait for the first checkpoint, before which the run's code may be incomplete.

    Return False if the run has ended without one.
    """
    ended = _ended(run)
    while not checkpoints(run):
        if ended(POLL_SECONDS):
            return bool(checkpoints(run))
    return True


def _observers(run: RunDirectory, *, own: bool) -> Observer:
    # A separate folder, since TensorBoard reads one file of a folder at a time.
    scalars = TensorBoardScalars(run.tensorboard / ("evaluator" if own else "evaluator-other"))
    log = EventLog(run.events if own else run.path / "evaluations.jsonl", shared=own)
    return Observers([log, scalars, display("lines", every_seconds=5.0)])


def _ended(run: RunDirectory) -> Any:
    pause = threading.Event()

    def ended(seconds: float) -> bool:
        return not run.in_use or pause.wait(seconds)

    return ended
