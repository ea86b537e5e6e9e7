"""TorchEstimator and TorchModel in a session of Spark."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StandardScaler
from pyspark.sql import DataFrame, SparkSession
from spark_toys import QUIET, Net, vectors

from flambeau.spark import TorchEstimator, persistence


@pytest.fixture(autouse=True)
def no_models_left() -> Iterator[None]:
    """Models are kept as long as their process; a test is one process here."""
    yield
    shutil.rmtree(persistence.temporary_folder())
    persistence.temporary_folder.cache_clear()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return vectors(spark).cache()


def estimator(**params: Any) -> TorchEstimator:
    return TorchEstimator(batchSize=16, fitParams=QUIET, learningRate=0.05, **params)


@pytest.fixture(scope="module")
def classifier(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> PipelineModel:
    """A pipeline that was trained."""
    folder = tmp_path_factory.mktemp("runs")
    scaler = StandardScaler(inputCol="features", outputCol="scaled")
    torch_stage = estimator(
        model=Net,
        modelParams={"hidden": 16},
        featuresCol="scaled",
        loss="cross_entropy",
        epochs=20,
        validationFraction=0.25,
        metrics=["accuracy"],
        checkpointDir=str(folder),
    )
    return Pipeline(stages=[scaler, torch_stage]).fit(rows)


def test_a_pipeline_classifies(classifier: PipelineModel, rows: DataFrame) -> None:
    scored = classifier.transform(rows)
    kinds = {field.name: field.dataType.simpleString() for field in scored.schema}
    assert kinds["prediction"] == "double"
    assert kinds["probability"] == kinds["rawPrediction"] == "vector"
    assert scored.columns[: len(rows.columns)] == rows.columns
    assert MulticlassClassificationEvaluator().evaluate(scored) > 0.8
    assert MulticlassClassificationEvaluator(metricName="logLoss").evaluate(scored) < 0.6
