"""A run as its files describe it: its settings, history and report."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import yaml

from flambeau.checkpoint import RunDirectory, best
from flambeau.checkpoint.changes import leaves
from flambeau.errors import RunDirectoryError
from flambeau.reports.history import Best, History
from flambeau.reports.reading import read_history, read_on

#: Depth of the search for runs below a folder.
_DEPTH = 3


@final
@dataclass(frozen=True)
class RunView:
    """A read-only view of a run at one time.

    `report` is None until the job has ended. `settings` are plain values.
    """

    directory: RunDirectory
    settings: Mapping[str, Any]
    report: Mapping[str, Any] | None
    in_use: bool
    #: The history that an earlier view has read; this view continues it.
    earlier: History | None = None

    @property
    def name(self) -> str:
        """Return the name of the directory."""
        return self.directory.path.resolve().name

    @cached_property
    def history(self) -> History:
        """Return the history of the run up to now."""
        if self.earlier is None:
            return read_history(self.directory)
        read_on(self.earlier, self.directory)
        return self.earlier

    @cached_property
    def model(self) -> str:
        """Return the name of the model: of its class or function, or of the file with it."""
        model, index = self.settings.get("model") or {}, self.directory.code / "index.json"
        path = model.get("path") or model.get("value") or ""
        if not model.get("path") and index.is_file():
            path = json.loads(index.read_bytes()).get("model", {}).get("type", path)
        if path == "flambeau.models:build":  # a model of the library, by its name
            path = model["args"].get("name", path)
        return str(path).replace(":", ".").rpartition(".")[2]

    @cached_property
    def best(self) -> Best | None:
        """Return the best evaluation that the run has recorded."""
        found = best(self.directory)
        if found is None or found.get("value") is None:
            return None
        return Best(found["step"], found["metric"], found["value"])

    @property
    def latest_time(self) -> float:
        """Return the time of the latest sign of activity, in seconds since 1970."""
        if self.report is not None:
            return self.directory.report.stat().st_mtime
        return self.history.latest or self.directory.job_file.stat().st_mtime

    @property
    def status(self) -> str:
        """Return "running", how the job ended, or "interrupted" if it ended without a report."""
        if self.report is not None:  # a starting job removes the report
            return str(self.report["status"])
        if self.in_use:
            return "running" if self.history.job else "starting"
        if self.history.end is not None:
            return str(self.history.end["status"])
        return "interrupted" if self.history.began is not None else "not started"

    @property
    def strategy(self) -> str:
        """Return the strategy and, with servers, the consistency of workers."""
        strategy = self.settings.get("strategy") or {}
        kind = strategy.get("kind", "all_reduce").replace("_", " ")
        consistency = strategy.get("consistency")
        return f"{kind}, {consistency}" if consistency else kind

    @property
    def cluster(self) -> str:
        """Return the kind of cluster."""
        return str((self.settings.get("cluster") or {}).get("kind", "local"))

    @property
    def workers(self) -> int | None:
        """Return the number of workers; None if the job has not started and they are not fixed."""
        places = (self.report, self.history.job, self.settings.get("cluster"))
        found = next((place["workers"] for place in places if place and place.get("workers")), None)
        return None if found is None else int(found)

    @property
    def servers(self) -> int:
        """Return the number of servers."""
        return int((self.settings.get("strategy") or {}).get("servers", 0))

    @property
    def step(self) -> int:
        """Return the number of updates made."""
        return int(self.report["step"]) if self.report else self.history.step

    @property
    def metrics(self) -> dict[str, float]:
        """Return the finite metrics of the last evaluation."""
        found = (self.report or {}).get("metrics") or self.history.latest_metrics
        return {name: value for name, value in found.items() if value is not None}

    @property
    def rows_per_second(self) -> float | None:
        """Return the mean speed of the whole job or, while it runs, the latest speed."""
        if self.report and "rows_per_second" in self.report:
            return float(self.report["rows_per_second"])
        progress = self.history.progress
        return None if progress is None else progress.rows_per_second

    @cached_property
    def flat_settings(self) -> dict[str, Any]:
        """Return settings by dotted name, without those that are not set."""
        return dict(leaves(self.settings))


def open_run(path: str | Path, earlier: RunView | None = None) -> RunView:
    """Return the run in a directory; with an `earlier` view, read only the events after it.

    The new view takes over the history of the earlier one.
    """
    run = RunDirectory(path)
    if not run.job_file.is_file():
        raise RunDirectoryError(
            f"{path} is not a run directory: it has no job.yaml. Give the folder that `flambeau "
            "train` names in its first line, such as runs/first"
        )
    known = None if earlier is None else earlier.history
    return RunView(run, _settings(run), _report(run), run.in_use, known)


def find_runs(folder: Path) -> list[Path]:
    """Return the run directories in a folder and in folders below it; itself if it is one."""
    if not folder.is_dir():
        raise RunDirectoryError(f"there is no folder {folder}; name the one that has your runs")
    return sorted(_runs_below(folder, _DEPTH))


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "job.yaml").is_file() and (folder / "checkpoints").is_dir():
        yield folder
    elif depth:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
                yield from _runs_below(entry, depth - 1)


def _settings(run: RunDirectory) -> Mapping[str, Any]:
    try:
        found = yaml.load(run.job_file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise RunDirectoryError(f"{run.job_file} cannot be read: {error}") from error
    if not isinstance(found, Mapping):
        raise RunDirectoryError(f"{run.job_file} has no settings; it was changed by something else")
    return found


def _report(run: RunDirectory) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = json.loads(run.report.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunDirectoryError(f"{run.report} cannot be read: {error}; remove it") from error
    return found
