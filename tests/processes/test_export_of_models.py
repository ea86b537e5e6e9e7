"""Every recommender model can be exported, and gives the same scores afterwards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import clicks, write_zoo_run

import flambeau as fb
from flambeau.config import Binding
from flambeau.driver.parts.predict import predict_run
from flambeau.inference.export import ExportOptions
from flambeau.models.ctr import FIELD_MODELS
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings

FIELDS = {"inputs": {"ids": ("C1", "C2", "C3"), "dense": ("I1", "I2")}}
SHAPE = {"fields": 3, "dense": 2}
TASKS: dict[str, Any] = {
    "mmoe": {"arguments": {"tasks": ["click", "buy"]}, "loss": {"click": "bce", "buy": "bce"}},
    "esmm": {"arguments": {"tasks": ["click", "buy"]}, "loss": {"click": "bce", "buy": "bce"}},
}


def gives_the_same(run: Any, out: Path, inside_mb: float = 0, format: str = "pt2") -> None:
    settings = read_settings(run)
    expected = predict_run(run, settings, "latest", settings.train, None)
    export_run(run, settings, "latest", out, ExportOptions(format, inside_mb=inside_mb))
    trust = format not in ("pt2", "onnx")
    found = fb.Predictor.load(out, trust=trust).predict(clicks())
    scores = [name for name in expected.column_names if "probability" in name] or ["prediction"]
    for name in scores:
        ours, theirs = (np.array(table[name].to_pylist()) for table in (found, expected))
        assert np.ptp(theirs) > 1e-4
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FIELD_MODELS)
def test_models_with_fields(tmp_path: Path, name: str) -> None:
    run = write_zoo_run(tmp_path, name, SHAPE, binding=Binding(**FIELDS), loss="bce")
    gives_the_same(run, tmp_path / "out")


@pytest.mark.parametrize("name", FIELD_MODELS)
@pytest.mark.parametrize("inside_mb", [0, 64])
def test_models_with_dense_fields(tmp_path: Path, name: str, inside_mb: int) -> None:
    shape = {**SHAPE, "sizes": [10**6, 30, 10**6], "dense_below": 100}
    columns = {"ids": ("item", "C2", "C3"), "dense": ("I1", "I2")}
    run = write_zoo_run(tmp_path, name, shape, binding=Binding(inputs=columns), loss="bce")
    gives_the_same(run, tmp_path / "out", inside_mb)


@pytest.mark.parametrize("format", ["onnx", "torchscript", "torch"])
@pytest.mark.parametrize("inside_mb", [0, 64])
def test_dense_fields_in_every_format(tmp_path: Path, format: str, inside_mb: int) -> None:
    shape = {**SHAPE, "sizes": {"item": 30, "C2": 30, "C3": 10**6}, "dense_below": 100}
    columns = {"ids": ("item", "C2", "C3"), "dense": ("I1", "I2")}
    run = write_zoo_run(tmp_path, "deepfm", shape, binding=Binding(inputs=columns), loss="bce")
    gives_the_same(run, tmp_path / "out", inside_mb, format)


def test_a_model_whose_fields_are_all_dense(tmp_path: Path) -> None:
    shape = {"fields": 2, "dense": 2, "sizes": [30, 30], "dense_below": 100}
    columns = {"ids": ("item", "C2"), "dense": ("I1", "I2")}
    run = write_zoo_run(tmp_path, "dlrm", shape, binding=Binding(inputs=columns), loss="bce")
    gives_the_same(run, tmp_path / "out")


@pytest.mark.parametrize("name", TASKS)
def test_models_of_several_tasks(tmp_path: Path, name: str) -> None:
    case = TASKS[name]
    arguments = {**SHAPE, **case["arguments"]}
    run = write_zoo_run(tmp_path, name, arguments, binding=Binding(**FIELDS), loss=case["loss"])
    gives_the_same(run, tmp_path / "out")


def test_a_model_with_a_history(tmp_path: Path) -> None:
    inputs = {**FIELDS["inputs"], "item": "item", "history": "history"}
    run = write_zoo_run(tmp_path, "din", SHAPE, binding=Binding(inputs=inputs), loss="bce")
    gives_the_same(run, tmp_path / "out")


@pytest.mark.parametrize("negatives", ["given", "batch"])
def test_a_model_of_the_newest_items_of_a_history(tmp_path: Path, negatives: str) -> None:
    # Scores of 8 would be off by more than 1e-6 from rounding alone.
    arguments = {"length": 2, "blocks": 1, "negatives": negatives, "temperature": 10.0}
    binding = Binding(inputs={"history": "history", "item": "item"})
    loss = "bce" if negatives == "given" else "in_batch_softmax"
    run = write_zoo_run(tmp_path, "sasrec", arguments, binding=binding, loss=loss)
    gives_the_same(run, tmp_path / "out")


@pytest.mark.parametrize("name", ["lr", "fm"])
def test_models_without_fields(tmp_path: Path, name: str) -> None:
    arguments = {"fields": None, "dense": 0}
    binding = Binding(inputs={"ids": "history"})
    run = write_zoo_run(tmp_path, name, arguments, binding=binding, loss="bce")
    gives_the_same(run, tmp_path / "out")


@pytest.mark.parametrize(
    "inputs",
    [
        {"user": "C1", "item": "item"},
        {"user": ["C1", "history"], "item": ["item", "history"]},
    ],
    ids=["one id each", "missing ids"],
)
def test_two_towers_give_the_score_of_each_pair(tmp_path: Path, inputs: dict[str, Any]) -> None:
    fields = 1 if isinstance(inputs["user"], str) else 2
    arguments = {"user_fields": fields, "item_fields": fields}
    binding = Binding(inputs=inputs)
    run = write_zoo_run(tmp_path, "two_tower", arguments, binding=binding, loss="in_batch_softmax")
    gives_the_same(run, tmp_path / "out")
