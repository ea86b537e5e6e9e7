"""`flambeau evaluate --follow`: beside a training, on this or another machine."""

import threading
import time
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.config import DatasetData, FileData, JobSettings
from flambeau.errors import DataError
from flambeau.job.evaluator import Follower
from flambeau.job.using import require_reopenable
from flambeau.observe import (
    Event,
    EventLog,
    Observer,
    Observers,
    TensorBoardScalars,
    display,
)


def follow_run(
    run: RunDirectory,
    settings: JobSettings,
    data: FileData | DatasetData | None,
    metrics: tuple[str, ...] | None,
) -> None:
    """Evaluate every checkpoint, until the run's report says that there will be no more.

    What is evaluated on the job's own data and metrics goes into the run's events.
    """
    own = data is None and metrics is None
    given = {"valid": data, "metrics": metrics}
    settings = settings.model_copy(update={k: v for k, v in given.items() if v is not None})
    if settings.valid is None:
        raise DataError("the job has no validation data; give the data to evaluate on")
    require_reopenable(settings)
    observer = _observers(run, own=own)

    def report(kind: str, **fields: Any) -> None:
        observer.observe(Event(kind, time.time(), fields))

    try:
        Follower(run, settings, report, own=own).follow(_ended(run))
    finally:
        observer.close()


def _observers(run: RunDirectory, *, own: bool) -> Observer:
    # A folder of its own: TensorBoard reads one file of a folder at a time.
    scalars = TensorBoardScalars(run.tensorboard / ("evaluator" if own else "evaluator-other"))
    log = EventLog(run.events if own else run.path / "evaluations.jsonl", shared=own)
    return Observers([log, scalars, display("lines", every_seconds=5.0)])


def _ended(run: RunDirectory) -> Any:
    pause = threading.Event()

    def ended(seconds: float) -> bool:
        return run.report.exists() or pause.wait(seconds)

    return ended
