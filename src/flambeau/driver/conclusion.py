"""The end of a job: its report, its last events, and its page."""

import json
import time

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.durable import write_atomically
from flambeau.config import JobSettings
from flambeau.driver.observers import Memory
from flambeau.driver.outcome import Outcome
from flambeau.driver.result import make_report
from flambeau.errors import FlambeauError
from flambeau.observe import Event, Observer


def conclude(
    run: RunDirectory,
    settings: JobSettings,
    observer: Observer,
    memory: Memory,
    started: float,
    outcome: Outcome,
) -> None:
    """Write the report, the last events and the page of a job that has ended."""
    report = make_report(outcome, memory, settings, started)
    write_atomically(run.report, json.dumps(report, indent=1).encode())
    _observe_dropped(observer, report["rows"])
    _observe_end(observer, outcome, memory)
    if settings.observe.report:
        _write_page(run, observer)


def _write_page(run: RunDirectory, observer: Observer) -> None:
    """Write the HTML page; an error is only a warning, so that it does not fail the job."""
    from flambeau.reports.page_file import write_page  # loads numpy, which would slow the start

    try:
        write_page([run.path], run.page)
    except (OSError, FlambeauError) as error:
        text = f"{run.page} could not be written: {error}"
        observer.observe(Event("warning", time.time(), {"text": text}))


def _observe_dropped(observer: Observer, rows: dict[str, int]) -> None:
    if rows["dropped"]:
        text = (
            f"{rows['dropped']:,} of {rows['read']:,} rows changed nothing: their gradients came "
            "too late for their round, or were not finite; see report.json"
        )
        observer.observe(Event("warning", time.time(), {"text": text}))


def _observe_end(observer: Observer, outcome: Outcome, memory: Memory) -> None:
    error = outcome.failure.message if outcome.failure else None
    known = {"step": memory.step} | outcome.summaries.get(0, {}) | outcome.coordinator_summary
    fields = {
        "status": outcome.ending,
        "step": known["step"],
        "error": error,
        "metrics": memory.metrics,
    }
    observer.observe(Event("job_end", time.time(), fields))
