"""SparkTorch's parameters in both modes, its pipelines, and scripts that import it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from torch import nn

from flambeau.compat.sparktorch import (
    PysparkPipelineWrapper,
    SparkTorch,
    create_spark_torch_model,
    serialize_torch_obj,
    serialize_torch_obj_lazy,
)
from flambeau.compat.sparktorch.inference import attach_pytorch_model_to_pipeline
from flambeau.compat.sparktorch.tests.simple_net import (
    AutoEncoder,
    ClassificationNet,
    Net,
    NetworkWithParameters,
)
from flambeau.compat.sparktorch.torch_distributed import SparkTorchModel
from flambeau.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "examples" / "sparktorch"
NET = serialize_torch_obj(Net(), nn.MSELoss(), torch.optim.Adam, lr=0.01)
#: It never gets better.
STUCK = serialize_torch_obj(Net(), nn.MSELoss(), torch.optim.SGD, lr=1e-30)

DEFAULTS: dict[str, Any] = {
    "InputCol": "features",
    "LabelCol": None,
    "PredictionCol": "predicted",
    "TorchObj": "",
    "Mode": "synchronous",
    "Device": "cpu",
    "Iters": 10,
    "MiniBatch": -1,
    "ValidationPct": 0.0,
    "EarlyStopPatience": -1,
    "Partitions": -1,
    "PartitionShuffles": 1,
    "Barrier": False,
    "VectorOut": False,
    "Verbose": 0,
    "Port": 3000,
    "AqcuireLock": True,
    "CompileMode": None,
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Two classes, far from each other, in two partitions."""
    drawn = np.random.default_rng(0)
    given = [
        (float(label), Vectors.dense(drawn.normal(2.0 * label, 0.5, 10)))
        for label in (0, 1)
        for _ in range(100)
    ]
    return spark.createDataFrame(given, ["label", "features"]).repartition(2).cache()


def fit(rows: DataFrame, **params: Any) -> SparkTorchModel:
    given = {"labelCol": "label", "predictionCol": "predictions", "torchObj": NET, **params}
    return SparkTorch(**given).fit(rows)


def report(model: SparkTorchModel) -> dict[str, Any]:
    return model._trained().summary.report


def error(model: SparkTorchModel, rows: DataFrame) -> float:
    found = model.transform(rows).collect()
    return sum(abs(row.predictions - row.label) for row in found) / len(found)


def test_getters_have_sparktorchs_names_and_defaults(spark: SparkSession) -> None:
    estimator = SparkTorch()
    assert {name: getattr(estimator, f"get{name}")() for name in DEFAULTS} == DEFAULTS


def test_mistakes_say_what_to_give(rows: DataFrame) -> None:
    with pytest.raises(TypeError, match="mode='parallel': use 'synchronous' or 'hogwild'"):
        SparkTorch(mode="parallel")
    with pytest.raises(ConfigError, match=r"SparkTorch has no miniBatches; .*'miniBatch'"):
        SparkTorch(miniBatches=3)
    with pytest.raises(ConfigError, match="nothing given: torchObj is serialize_torch_obj"):
        SparkTorch().fit(rows)
    with pytest.raises(ConfigError, match="iters=0: give at least 1"):
        fit(rows, iters=0)
    with pytest.raises(ConfigError, match="this SparkTorchModel is empty"):
        SparkTorchModel().transform(rows)


def test_synchronous_partitions_make_their_steps_together(
    rows: DataFrame, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="partitions=3, but this session runs 2 tasks at a time"):
        model = fit(
            rows, iters=60, miniBatch=32, partitions=3, useBarrier=True, verbose=1, device="cpu"
        )
    assert report(model)["step"] == 60
    assert report(model)["workers"] == 2
    assert error(model, rows) < 0.2
    assert "loss" in capfd.readouterr().err


def test_hogwild_partitions_make_their_steps_each(rows: DataFrame) -> None:
    model = fit(
        rows, mode="hogwild", iters=60, miniBatch=32, partitions=2, port=3001, acquireLock=False
    )
    assert report(model)["step"] == 120
    assert error(model, rows) < 0.2


def test_a_float_label_may_be_a_class_and_a_network_lazy(rows: DataFrame) -> None:
    text = serialize_torch_obj_lazy(
        ClassificationNet, nn.CrossEntropyLoss, torch.optim.Adam, optimizer_params={"lr": 0.02}
    )
    model = fit(rows, torchObj=text, iters=15, partitionShuffles=2, validationPct=0.25)
    assert report(model)["step"] == 30
    assert model._trained().summary.metrics["loss"] < 0.5
    assert error(model, rows) < 0.05
    assert {row.predictions for row in model.transform(rows).collect()} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("mode", "validation", "most"), [("synchronous", 0.25, 5), ("hogwild", 0.0, 12)]
)
def test_training_ends_when_the_loss_gets_no_better(
    rows: DataFrame, mode: str, validation: float, most: int
) -> None:
    model = fit(
        rows, torchObj=STUCK, mode=mode, iters=50, earlyStopPatience=3, validationPct=validation
    )
    assert 3 < report(model)["step"] <= most


def test_an_auto_encoder_in_a_pipeline_is_saved_and_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    drawn = np.random.default_rng(1).normal(size=(40, 10)).tolist()
    raw = spark.createDataFrame([tuple(row) for row in drawn], [f"c{i}" for i in range(10)])
    text = serialize_torch_obj(AutoEncoder(), nn.MSELoss(), torch.optim.Adam, lr=0.01)
    learner = SparkTorch(torchObj=text, iters=3, predictionCol="out", useVectorOut=True)
    pipeline = Pipeline(
        stages=[VectorAssembler(inputCols=raw.columns, outputCol="features"), learner]
    )
    pipeline.write().overwrite().save(str(tmp_path / "unfitted"))
    pipeline = PysparkPipelineWrapper.unwrap(Pipeline.load(str(tmp_path / "unfitted")))
    fitted = pipeline.fit(raw)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    plain = PipelineModel.load(str(tmp_path / "fitted"))
    expected = fitted.transform(raw).first().out
    assert len(expected) == 10
    for loaded in (plain, PysparkPipelineWrapper.unwrap(plain)):
        assert loaded.transform(raw).first().out == expected


def test_a_trained_network_becomes_a_stage(rows: DataFrame, spark: SparkSession) -> None:
    network = NetworkWithParameters(4)
    model = create_spark_torch_model(network, predictionCol="label")
    (weights, same) = (network.state_dict(), model.getPytorchModel().state_dict())
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    row = model.transform(rows).first()  # takes the place of a column of that name
    expected = network(torch.tensor(row.features.toArray()).float()).item()
    assert row.label == pytest.approx(expected, abs=1e-5)

    attached = attach_pytorch_model_to_pipeline(
        network, PipelineModel(stages=[]), predictionCol="out", useVectorOut=True
    )
    assert attached.transform(rows).first().out.toArray() == pytest.approx([expected], abs=1e-5)


def test_a_network_can_be_compiled(rows: DataFrame) -> None:
    assert report(fit(rows, iters=2, compileMode="default"))["step"] == 2


@pytest.mark.parametrize(("script", "arguments"), [("simple_dnn", ["saved"]), ("simple_cnn", [])])
def test_scripts_for_sparktorch_run_with_the_python_of_the_driver(
    run_script: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    arguments: list[str],
) -> None:
    # What Spark would take for its workers where an environment is not activated.
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.chdir(tmp_path)
    by = ("-m", "flambeau", "run", "--alias", "sparktorch")
    printed = run_script(EXAMPLES / f"{script}.py", *arguments, by=by)
    assert float(printed.rpartition("accuracy: ")[2]) > 0.9
