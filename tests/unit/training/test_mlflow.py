import json
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from flambeau.errors import MissingDependencyError
from flambeau.training.callbacks import TrainingView
from flambeau.training.mlflow import RUN_FILE, MLflow, flatten

JOB = """\
batch_size: 8
valid: null
metrics: []
optimizer:
  name: adam
  args: {lr: 0.5}
  groups: {"*.bias": {lr: 0.25}}
"""


def client_of(uri: str) -> Any:
    """A client; the import takes seconds, so it happens only where these tests run."""
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Databases and servers need more than is installed here.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return (tmp_path / "tracking").as_uri()


@pytest.fixture
def view(tmp_path: Path) -> TrainingView:
    run_dir = tmp_path / "night"
    run_dir.mkdir()
    (run_dir / "job.yaml").write_text(JOB)
    return TrainingView(
        model=nn.Linear(2, 1),
        optimizers={},
        run_dir=run_dir,
        rank=0,
        workers=2,
        log=lambda values: None,
    )


def train(callback: MLflow, view: TrainingView, steps: int = 2) -> None:
    callback.on_start(view)
    for _ in range(steps):
        view.step += 1
        view.loss = 1.0 / view.step
        callback.on_step_end(view)
    callback.on_evaluation(view, {"auc": 0.75, "calibration": float("nan")})
    callback.on_end(view)


def only_run(uri: str, experiment: str = "Default") -> Any:
    client = client_of(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    return run


def test_a_run_is_named_after_its_directory_and_ends(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri), view)
    info = only_run(uri).info
    assert (info.run_name, info.status) == ("night", "FINISHED")


def test_experiment_and_run_name_can_be_given(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri, experiment="clicks", run_name="first"), view)
    assert only_run(uri, "clicks").info.run_name == "first"


def test_the_jobs_settings_are_the_parameters(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri), view)
    assert only_run(uri).data.params == {
        "batch_size": "8",
        "optimizer.name": "adam",
        "optimizer.args.lr": "0.5",
        "optimizer.groups._.bias.lr": "0.25",
    }


def test_loss_and_metrics_are_logged_with_their_step(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri, loss_every=2), view, steps=4)
    client, run_id = client_of(uri), only_run(uri).info.run_id
    losses = client.get_metric_history(run_id, "train/loss")
    assert [(point.step, point.value) for point in losses] == [(2, 0.5), (4, 0.25)]
    assert [point.step for point in client.get_metric_history(run_id, "valid/auc")] == [4]


def test_a_value_that_is_not_finite_is_left_out(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri), view)
    assert set(only_run(uri).data.metrics) == {"valid/auc"}


def test_a_resumed_run_goes_on_with_its_mlflow_run(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri, loss_every=1), view, steps=2)
    train(MLflow(tracking_uri=uri, loss_every=1), view, steps=1)
    run = only_run(uri)
    history = client_of(uri).get_metric_history(run.info.run_id, "train/loss")
    assert [point.step for point in history] == [1, 2, 3]
    assert json.loads((view.run_dir / RUN_FILE).read_text()) == {"run_id": run.info.run_id}


def test_a_run_under_way_is_shown_as_running_again(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri), view)
    MLflow(tracking_uri=uri).on_start(view)
    assert only_run(uri).info.status == "RUNNING"


def test_the_last_weights_are_uploaded_if_asked(uri: str, view: TrainingView) -> None:
    train(MLflow(tracking_uri=uri, log_model=True), view)
    artifacts = Path(only_run(uri).info.artifact_uri.removeprefix("file://"))
    saved = safetensors.torch.load_file(artifacts / "model" / "weights.safetensors")
    assert torch.equal(saved["weight"], view.model.weight)


def test_only_the_first_worker_logs(uri: str, view: TrainingView, tmp_path: Path) -> None:
    view.rank = 1
    train(MLflow(tracking_uri=uri, loss_every=1), view)
    assert not (tmp_path / "tracking").exists()


def test_flatten_leaves_out_what_is_not_set() -> None:
    assert dict(flatten({"a": {"b": 0, "c": None}, "d": [], "e": False})) == {
        "a.b": "0",
        "e": "False",
    }


def test_without_mlflow_the_error_names_the_extra(
    view: TrainingView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'flambeau\[mlflow\]'"):
        MLflow().on_start(view)
