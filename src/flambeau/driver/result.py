"""The result of a finished job: its model, metrics and report, and methods to use them."""

import json
import platform
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, final

from flambeau.checkpoint import RunDirectory
from flambeau.config import Cluster, JobSettings
from flambeau.driver.observers import Memory
from flambeau.driver.outcome import Outcome
from flambeau.errors import CheckpointError
from flambeau.version import __version__


def make_report(
    outcome: Outcome, memory: Memory, settings: JobSettings, started: float
) -> dict[str, Any]:
    """Return the content of the run's `report.json`."""
    summary = dict(outcome.summaries.get(0, {}))
    own = summary.get("client", {}).get("tables")
    rows = _rows(summary, memory)
    if outcome.rows is not None:
        rows = _free_rows(outcome, memory)
    counted = ("rows", "rows_repeated", "rows_dropped", "rows_left_out")
    for name in (*counted, "history", "own_rows", "own_steps", "client"):
        summary.pop(name, None)
    return {
        "status": outcome.ending,
        "error": outcome.failure.message if outcome.failure else None,
        "workers": settings.cluster.workers,
        "restarts": outcome.restarts,
        **({"places": outcome.places} if outcome.places else {}),
        "wall_seconds": round(time.time() - started, 3),
        "rows": {**rows, "skipped": memory.rows_skipped},
        "step": memory.step,
        **summary,
        **_speed(list(outcome.summaries.values())),
        **_by_worker(outcome),
        "versions": _versions(),
        **outcome.coordinator_summary,
        "stopped_early": outcome.stopped_early,
        "metrics": _metrics(outcome, memory),
        **({"tables": own} if own else {}),
        **_served(outcome),
    }


def _rows(summary: dict[str, Any], memory: Memory) -> dict[str, int]:
    """Return the counts of rows read, applied and so on, by the first worker and the observers.

    If the worker ended before it sent a summary, the last progress event counts.
    """
    passed, dropped = int(summary.get("rows", memory.rows)), int(summary.get("rows_dropped", 0))
    repeated = int(summary.get("rows_repeated", 0)) + memory.rows_lost
    left_out = int(summary.get("rows_left_out", 0))
    counts = {
        "read": passed + repeated,
        "applied": passed - dropped - left_out,
        "dropped": dropped,
        "repeated": repeated,
    }
    return {**counts, "left_out": left_out} if left_out else counts


def _free_rows(outcome: Outcome, memory: Memory) -> dict[str, int]:
    """Return the counts of rows read, applied and so on, by the coordinator.

    Rows whose updates were `lost` with a server are not applied. Only lost updates are counted;
    their rows are estimated from the mean number of rows per update.
    """
    rows = dict(outcome.rows or {})
    rows["read"] += memory.rows_lost
    rows["repeated"] += memory.rows_lost
    steps = outcome.coordinator_summary.get("step", 0)
    trained = rows["applied"] + rows["dropped"]
    lost = round(_updates_lost(outcome) * trained / steps) if steps else 0
    lost = min(lost, rows["applied"])
    rows["applied"] -= lost
    return {**rows, "lost": lost} if lost else rows


def _updates_lost(outcome: Outcome) -> int:
    """Return the number of updates that servers had made but not saved when they were lost.

    The coordinator counts all except the last ones, which workers had not reported yet. A worker
    counts those too, if it was running before and after the loss.
    """
    clients = [summary.get("client", {}) for summary in outcome.summaries.values()]
    counted = (*clients, outcome.coordinator_summary)
    return max(int(counts.get("updates_lost", 0)) for counts in counted)


def _speed(workers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean seconds per step over the steps of all workers, and their rows per second.

    Synchronous workers count the rows of all workers; asynchronous ones report their own.
    """
    timed = [worker for worker in workers if worker.get("own_steps")]
    if not timed:
        return {}
    steps = sum(worker["own_steps"] for worker in timed)
    parts = timed[0]["seconds_per_step"]
    seconds = {
        name: sum(each["own_steps"] * each["seconds_per_step"][name] for each in timed) / steps
        for name in parts
    }
    own = [each["own_rows"] / each["seconds"] for each in timed if "own_rows" in each]
    return {"seconds_per_step": seconds, **({"rows_per_second": sum(own)} if own else {})}


def _by_worker(outcome: Outcome) -> dict[str, Any]:
    """Return the number of steps of each worker, and its mean seconds per step."""
    timed = {rank: each for rank, each in outcome.summaries.items() if each.get("own_steps")}
    found = {
        str(rank): {"steps": each["own_steps"], "seconds_per_step": each["seconds_per_step"]}
        for rank, each in sorted(timed.items())
    }
    return {"by_worker": found} if found else {}


def _versions() -> dict[str, str]:
    return {
        "flambeau": __version__,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def _served(outcome: Outcome) -> dict[str, Any]:
    """Return the counts of servers and their clients, if there were any."""
    if not outcome.servers:
        return {}
    clients = {str(rank): s["client"] for rank, s in sorted(outcome.summaries.items())}
    servers = {str(shard): summary for shard, summary in sorted(outcome.servers.items())}
    lost = _updates_lost(outcome)
    return {"updates_lost": lost, "servers": servers, "clients": clients}


def _metrics(outcome: Outcome, memory: Memory) -> dict[str, float]:
    """Return the metrics of the workers' last evaluation, or of the evaluator's."""
    return dict(outcome.summaries.get(0, {}).get("metrics") or memory.metrics)


@final
class Result:
    """A finished run.

    `metrics` are the final ones by name, `history` has one entry per evaluation, `report` is the
    content of report.json, `run_dir` is the folder of the run.
    """

    def __init__(
        self, run: RunDirectory, settings: JobSettings, outcome: Outcome, memory: Memory
    ) -> None:
        self._run, self._settings = run, settings
        self.run_dir: Path = run.path
        self.metrics = _metrics(outcome, memory)
        history = outcome.summaries.get(0, {}).get("history") or memory.history
        self.history: list[dict[str, Any]] = history
        self.report: dict[str, Any] = json.loads(run.report.read_bytes())
        #: The validation data as it was given to `fit`.
        self.valid: Any = None
        self._model: Any = None
        #: The launcher's processes that the job ran in; all make the same calls: see `fb.Attached`.
        self.attached: Cluster | None = None
        #: Whether this process drove the job; False in the other processes of a launcher.
        self.is_driver = True

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for other processes, without in-memory data and connections."""
        settings = JobSettings.parse(self._settings.model_dump(mode="json"))
        other = {"_settings": settings, "valid": None, "_model": None, "is_driver": False}
        return {**self.__dict__, **other}

    @property
    def model(self) -> Any:
        """The trained module with its last weights, on the CPU and in evaluation mode."""
        if self._model is None:
            self._model = self.model_at("latest")
        return self._model

    def model_at(self, which: str) -> Any:
        """Return the module with a checkpoint's weights: `"best"`, `"latest"`, `"step-100"`."""
        from flambeau.runs.trained_run import load_model

        if not self.is_driver and not self._run.path.exists():
            raise CheckpointError(
                f"the run directory {self._run.path} is not on this machine: only rank 0 has it. "
                "Use the model where result.is_driver is true, or put the run into a shared folder"
            )
        return load_model(self._run, self._settings, which)

    def evaluate(
        self,
        data: Any = None,
        metrics: Sequence[str] = (),
        *,
        workers: int | None = None,
        cluster: Cluster | None = None,
    ) -> dict[str, float]:
        """Return metrics of the model on `data` (by default the job's validation data).

        With `workers`, this number of processes evaluate parts of files, with the same result; with
        `cluster`, the processes of that cluster do.
        """
        from flambeau.driver.parts.evaluate import evaluate_run

        names = tuple(metrics) or self._settings.metrics
        data = self.valid if data is None else data
        return evaluate_run(
            self._run, self._settings, "latest", data, names, workers, cluster or self.attached
        ).metrics

    def predict(
        self,
        data: Any,
        out: str | Path | None = None,
        *,
        workers: int | None = None,
        batch_size: int | None = None,
        cluster: Cluster | None = None,
    ) -> Any:
        """Predict `data` in order; return an Arrow table, or with `out` the number of rows there.

        `out` is a .parquet or .csv file, or a folder. With a folder, `workers` processes predict
        files, here or on a `cluster` whose machines all see the folder, and the same call resumes
        after a crash.
        """
        from flambeau.driver.parts.predict import predict_run
        from flambeau.runs.prediction import PredictionOptions

        options = PredictionOptions(workers, batch_size)
        given = (self._run, self._settings, "latest", data, out)
        return predict_run(*given, options, cluster=cluster or self.attached)

    def export(
        self,
        out: str | Path,
        format: str = "pt2",
        *,
        tables: str = "fp32",
        since: str | Path | None = None,
    ) -> Path:
        """Write the model to the new folder `out`, to use without its code: graph, tables, columns.

        `format` is pt2, onnx, torch or torchscript; `tables` is the type of stored rows (fp32,
        bf16, int8). With `since`, another export or a run, only changes are written.
        """
        from flambeau.inference.export import ExportOptions
        from flambeau.runs.run_export import export_run

        options = ExportOptions(format, tables)
        base = None if since is None else str(since)
        export_run(self._run, self._settings, "latest", Path(out), options, base)
        return Path(out)

    def export_vectors(
        self,
        data: Any,
        out: str | Path,
        of: Literal["item", "user"] = "item",
        id: str | None = None,
    ) -> int:
        """Write `id` and `vector` of items or users in `data` to Parquet; return their number.

        The model needs a method `item_vectors` or `user_vectors`. Ids come from the column `id`, or
        from the first field of that method's first argument. `TableSpec(init=out)` reads the file.
        """
        from flambeau.runs.item_vectors import export_run_vectors

        return export_run_vectors(self._run, self._settings, "latest", data, out, of, id)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"Result({shown or 'no metrics'}, run_dir={str(self.run_dir)!r})"
