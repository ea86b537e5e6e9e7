"""A callback that logs a run's settings, metrics and weights to MLflow."""

import json
import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import yaml

from flambeau.errors import MissingDependencyError
from flambeau.training.callbacks import Callback, TrainingView

DEFAULT_EXPERIMENT = "Default"
#: File in the run directory with the MLflow run, which a restarted or resumed run continues.
RUN_FILE = "mlflow.json"

_MOST_PARAMS = 100
_MOST_CHARACTERS = 500
_ILLEGAL = re.compile(r"[^\w\-. :/]")


@final
class MLflow(Callback):
    """Callback that logs to MLflow, on the first worker only.

    Parameters are the job's settings, by their path (`optimizer.args.lr`); metrics are `train/loss`
    (this worker's) every `loss_every` steps, and `valid/<name>` of each evaluation. `log_model`
    uploads the last weights as `model/weights.safetensors`. Without `tracking_uri`, MLflow's own
    configuration decides; `run_name` defaults to that of the run directory.
    """

    def __init__(
        self,
        *,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        log_model: bool = False,
        loss_every: int = 50,
    ) -> None:
        self._experiment = experiment or DEFAULT_EXPERIMENT
        self._tracking_uri, self._run_name = tracking_uri, run_name
        self._log_model, self._loss_every = log_model, loss_every
        self._client: Any = None
        self._run_id = ""

    def on_start(self, view: TrainingView) -> None:
        """Start an MLflow run, or resume the one of this run directory."""
        if not view.first:
            return
        self._client = _open_client(self._tracking_uri)
        known = view.run_dir / RUN_FILE
        if known.exists():
            self._run_id = json.loads(known.read_text())["run_id"]
            self._client.set_terminated(self._run_id, "RUNNING")
            return
        name = self._run_name or view.run_dir.name
        self._run_id = self._client.create_run(self._experiment_id(), run_name=name).info.run_id
        self._log_params(view.run_dir / "job.yaml")
        known.write_text(json.dumps({"run_id": self._run_id}))

    def on_step_end(self, view: TrainingView) -> None:
        """Log the loss every `loss_every` steps."""
        if view.step % self._loss_every == 0:
            self._log_metrics({"train/loss": view.loss}, view.step)

    def on_evaluation(self, view: TrainingView, metrics: Mapping[str, float]) -> None:
        """Log the metrics."""
        self._log_metrics({f"valid/{name}": value for name, value in metrics.items()}, view.step)

    def on_end(self, view: TrainingView) -> None:
        """Upload the weights if requested, and end the MLflow run."""
        if self._client is None:
            return
        if self._log_model:
            self._upload_weights(view)
        self._client.set_terminated(self._run_id)
        self._client = None

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self._experiment))

    def _log_params(self, job_file: Path) -> None:
        from mlflow.entities import Param

        settings = yaml.safe_load(job_file.read_bytes())
        params = [Param(name, value[:_MOST_CHARACTERS]) for name, value in flatten(settings)]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._run_id, params=params[start : start + _MOST_PARAMS])

    def _log_metrics(self, values: Mapping[str, float], step: int) -> None:
        if self._client is None:
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        finite = {_legal(name): value for name, value in values.items() if math.isfinite(value)}
        metrics = [Metric(name, value, now, step) for name, value in finite.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def _upload_weights(self, view: TrainingView) -> None:
        import safetensors.torch

        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "weights.safetensors"
            safetensors.torch.save_model(view.model, str(path))
            self._client.log_artifact(self._run_id, str(path), "model")


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield `{"a": {"b": 1}}` as `("a.b", "1")`, without empty values."""
    for key, value in settings.items():
        name = f"{prefix}{_legal(str(key))}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        elif value is not None and value not in ("", [], ()):
            yield name, str(value)


def _legal(name: str) -> str:
    return _ILLEGAL.sub("_", name)


def _open_client(tracking_uri: str | None) -> Any:
    try:
        from mlflow.tracking import MlflowClient
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the MLflow callback needs {error.name}, which is not installed; "
            "pip install 'flambeau[mlflow]'"
        ) from error
    return MlflowClient(tracking_uri=tracking_uri)
