"""Runs made by hand: settings and events, without a training."""

from pathlib import Path
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, FileData, JobSettings, ParameterServer
from flambeau.observe import Event, EventLog

EVIL = "<script>alert('\"&')</script>"
JOB_START: dict[str, Any] = {
    "name": "made",
    "workers": 2,
    "batch_size": 4,
    "global_batch": 8,
    "steps_total": 100,
    "epochs": 1,
    "run_dir": "runs/made",
    "resumed_step": 0,
    "resumed_rows": 0,
    "skipped_rows": 0,
}


def progress(step: int, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    fields = {"step": step, "epoch": 0, "steps_total": 100, "rows": step * 8, "lr": 0.1}
    seconds = {"data_seconds": 0.1, "compute_seconds": 0.3, "communication_seconds": 0.1}
    return {**fields, "rows_per_second": 16.0, "loss": loss, **seconds, **more}


def server(pulls: int, staleness: dict[str, int], shard: int = 0, shards: int = 1) -> Any:
    sizes = {"rows": pulls, "bytes": pulls * 10, "admitted": pulls, "rejected": 0, "evicted": 1}
    counts = {"pulls": pulls, "pushes": pulls, "busy_seconds": 0.5}
    own = {"shard": shard, "shards": shards, "version": pulls}
    return {**own, **counts, "staleness": staleness, "tables": {"ids": sizes}}


def make_run(
    path: Path, *events: tuple[str, float, dict[str, Any]], **settings: Any
) -> RunDirectory:
    """Make a run whose events have these kinds, times and fields."""
    given = {"model": CodeRef(path="m:Net"), "train": FileData(path="x"), "batch_size": 4}
    run = RunDirectory(path)
    run.prepare(JobSettings(**{**given, **settings}).model_dump(mode="json"), "auto")
    append(run, *events)
    return run


def append(run: RunDirectory, *events: tuple[str, float, dict[str, Any]]) -> None:
    log = EventLog(run.events)
    for kind, time, fields in events:
        log.observe(Event(kind, time, fields))
    log.close()


def started(at: float = 1000.0) -> list[tuple[str, float, dict[str, Any]]]:
    return [("generation", at, {"number": 0}), ("job_start", at + 2.0, JOB_START)]


SERVED = ParameterServer(consistency="asynchronous")
