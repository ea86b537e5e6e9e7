"""The observers of a run, by its settings, and what the driver itself records of it."""

from typing import Any, final

from flambeau.checkpoint import RunDirectory
from flambeau.config import Observe
from flambeau.errors import RunDirectoryError
from flambeau.observe import (
    Event,
    EventLog,
    MetricsFile,
    MLPerfLog,
    Observer,
    Observers,
    TensorBoardScalars,
    display,
    read_events,
)
from flambeau.reports.digest_writer import DigestWriter


@final
class Memory(Observer):
    """The history of evaluations and the latest counts, for the result."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.metrics: dict[str, float] = {}
        self.rows_lost = 0
        self.rows_skipped = 0
        self.step = 0
        self.restarts = 0
        self.rows = 0

    def observe(self, event: Event) -> None:
        """Record progress, evaluations and restarts."""
        fields = event.fields
        if event.kind == "evaluation":
            entry = {"step": fields["step"], "epoch": fields["epoch"], **fields["metrics"]}
            self.history.append(entry)
            self.metrics = dict(fields["metrics"])
        elif event.kind == "progress":
            self.step, self.rows = fields["step"], fields["rows"]
        elif event.kind == "job_start":
            # A new generation resumes from a checkpoint; rows after it are trained on again.
            self.rows_lost += max(0, self.rows - fields.get("resumed_rows", 0))
            self.rows = fields.get("resumed_rows", 0)
            self.step = fields["resumed_step"]
            self.rows_skipped = fields.get("skipped_rows", 0)
        elif event.kind == "restart":
            self.restarts += 1

    def recall(self, run: RunDirectory) -> str | None:
        """Record rows of earlier parts of the run, some of which may be trained on again.

        If the events cannot be read, return a warning about that.
        """
        try:
            for event in read_events(run.events) if run.events.exists() else ():
                if event.kind in ("progress", "job_start"):
                    self.observe(event)
        except RunDirectoryError as error:
            return f"rows that earlier parts of the run repeated are not counted: {error}"
        return None

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


def make_observers(settings: Observe, run: RunDirectory, memory: Memory) -> Observers:
    """Return the observers of a run: always the event log and the display, others by settings."""
    observers: list[Observer] = [memory, EventLog(run.events), DigestWriter(run)]
    if settings.tensorboard:
        observers.append(TensorBoardScalars(run.tensorboard))
    if settings.mlperf_log:
        observers.append(MLPerfLog(run.path / "mlperf.log"))
    if settings.prometheus:
        observers.append(MetricsFile(run.path / "metrics.prom"))
    observers.append(display(settings.progress, settings.every_seconds))
    return Observers(observers)
