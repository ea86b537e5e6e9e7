"""The history of a run from its events, in memory that does not grow with the run's length."""

import math
from collections.abc import Callable
from typing import Any, final

import msgspec

from flambeau.observe.event import Event
from flambeau.reports.notes import Note, Notes, Spans
from flambeau.reports.points import Points
from flambeau.reports.server_record import ServerRecord

PROGRESS_NUMBERS = [
    "loss",
    "lr",
    "rows_per_second",
    "data_seconds",
    "compute_seconds",
    "communication_seconds",
]
#: Most names of metrics, and of scalars, that are kept.
MOST_NAMES = 100
#: Seconds without events before a new generation that count as a pause between parts of a run.
_PAUSE_SECONDS = 5.0


@final
class Progress(msgspec.Struct):
    """A `progress` event; numbers that were not finite are None."""

    time: float
    step: int
    epoch: int = 0
    rows: int = 0
    steps_total: int | None = None
    loss: float | None = None
    lr: float | None = None
    rows_per_second: float | None = None
    data_seconds: float | None = None
    compute_seconds: float | None = None
    communication_seconds: float | None = None


@final
class Best(msgspec.Struct):
    """The best evaluation so far."""

    step: int
    metric: str
    value: float


@final
class History(msgspec.Struct):
    """The history of a run up to some event.

    Elapsed seconds count from the first event, without the time between two parts of a run that
    was stopped and resumed.
    """

    #: Bytes of the log that have been read.
    offset: int = 0
    began: float | None = None
    #: Time of the last event.
    latest: float = 0.0
    paused: float = 0.0
    parts: int = 0
    restarts: int = 0
    generation: int = 0
    #: Fields of the last `job_start` and of the last `job_end`, which is None while a job runs.
    job: dict[str, Any] = {}
    end: dict[str, Any] | None = None
    #: The agents of the generation, each with host, cores, and the roles that it has started.
    started: list[dict[str, Any]] = []
    #: Fields of the last `worker` event of each rank.
    workers: dict[int, dict[str, Any]] = {}
    progress: Progress | None = None
    #: Step of the first `progress` event without a finite loss.
    loss_lost: int | None = None
    best: Best | None = None
    numbers: Points = msgspec.field(default_factory=lambda: Points(PROGRESS_NUMBERS))
    checkpoints: Points = msgspec.field(default_factory=lambda: Points(["step"]))
    evaluations: Points = msgspec.field(default_factory=lambda: Points(["seconds"]))
    metrics: dict[str, Points] = {}
    latest_metrics: dict[str, float | None] = {}
    scalars: dict[str, Points] = {}
    spans: Spans = msgspec.field(default_factory=Spans)
    notes: Notes = msgspec.field(default_factory=Notes)
    served: ServerRecord = msgspec.field(default_factory=ServerRecord)

    @property
    def step(self) -> int:
        """Return the number of steps made."""
        return 0 if self.progress is None else self.progress.step

    @property
    def elapsed(self) -> float:
        """Return the seconds up to the last event."""
        return 0.0 if self.began is None else self.latest - self.began - self.paused

    def add_progress(self, event: Progress) -> None:
        """Add a `progress` event."""
        self._reach(event.time)
        self.progress = event
        if event.loss is None and self.loss_lost is None:
            self.loss_lost = event.step
        values = (
            event.loss,
            event.lr,
            event.rows_per_second,
            event.data_seconds,
            event.compute_seconds,
            event.communication_seconds,
        )
        finite = (math.nan if value is None else value for value in values)
        self.numbers.add(self.elapsed, event.step, *finite)

    def add(self, event: Event) -> None:
        """Add an event; kinds that are not part of the history are ignored."""
        if event.kind == "generation":
            self._begin_generation(event)
        elif event.kind in HANDLERS:
            self._reach(event.time)
            HANDLERS[event.kind](self, event)

    def _reach(self, time: float) -> None:
        if self.began is None:
            self.began = time
        # A machine's clock may be set back; the time of a history must not decrease.
        self.latest = max(self.latest, time)

    def _begin_generation(self, event: Event) -> None:
        self.generation = event.fields["number"]
        self.started = event.fields.get("started", [])
        if self.generation == 0:
            self.parts += 1
            if self.began is not None and event.time - self.latest > _PAUSE_SECONDS:
                self.spans.enter("stopped", self.elapsed)
                self.paused += event.time - self.latest
        self._reach(event.time)
        self.end = None
        self.spans.enter("starting", self.elapsed)

    def _progress(self, event: Event) -> None:
        self.add_progress(msgspec.convert({"time": event.time, **event.fields}, Progress))

    def _job_start(self, event: Event) -> None:
        self.job = event.fields
        self.spans.enter("training", self.elapsed)

    def _job_end(self, event: Event) -> None:
        self.end = event.fields
        self.spans.enter("stopped", self.elapsed)
        self._note(event, event.fields.get("error") or event.fields["status"])

    def _evaluation(self, event: Event) -> None:
        fields = event.fields
        self.latest_metrics = dict(fields["metrics"])
        self.evaluations.add(self.elapsed, fields["step"], fields.get("seconds") or 0.0)
        self._add_named(self.metrics, fields["step"], fields["metrics"])

    def _scalars(self, event: Event) -> None:
        self._add_named(self.scalars, event.fields["step"], event.fields["values"])

    def _add_named(
        self, known: dict[str, Points], step: int, values: dict[str, float | None]
    ) -> None:
        for name, value in values.items():
            if name not in known and len(known) < MOST_NAMES:
                known[name] = Points(["value"])
            if name in known:
                known[name].add(self.elapsed, step, math.nan if value is None else float(value))

    def _checkpoint(self, event: Event) -> None:
        step = event.fields["step"]
        self.checkpoints.add(self.elapsed, step, step)

    def _best(self, event: Event) -> None:
        fields = event.fields
        if fields["value"] is not None:
            self.best = Best(fields["step"], fields["metric"], fields["value"])

    def _server(self, event: Event) -> None:
        self.served.add_server(event, self.elapsed, self.step)

    def _client(self, event: Event) -> None:
        self.served.add_client(event, self.elapsed, self.step)

    def _worker(self, event: Event) -> None:
        self.workers[event.fields["rank"]] = event.fields

    def _worker_lost(self, event: Event) -> None:
        fields = event.fields
        host = f" on {fields['host']}" if fields.get("host") else ""
        self._note(
            event, f"{fields.get('role', 'worker')} {fields['rank']}{host}: {fields['reason']}"
        )

    def _restart(self, event: Event) -> None:
        self.restarts += 1
        self._note(event, event.fields["reason"])

    def _exception(self, event: Event) -> None:
        fields = event.fields
        who = f"{fields.get('role', 'worker')} {fields['rank']}"
        self._note(event, f"{who}: {fields['error']}: {fields['text']}")

    def _warning(self, event: Event) -> None:
        self._note(event, event.fields["text"])

    def _note(self, event: Event, text: str) -> None:
        self.notes.add(Note(event.kind, self.elapsed, self.step, str(text)))


HANDLERS: dict[str, Callable[[History, Event], None]] = {
    "progress": History._progress,
    "job_start": History._job_start,
    "job_end": History._job_end,
    "evaluation": History._evaluation,
    "scalars": History._scalars,
    "checkpoint": History._checkpoint,
    "best": History._best,
    "server": History._server,
    "client": History._client,
    "worker": History._worker,
    "worker_lost": History._worker_lost,
    "restart": History._restart,
    "exception": History._exception,
    "warning": History._warning,
}
KINDS = frozenset({*HANDLERS, "generation"})
