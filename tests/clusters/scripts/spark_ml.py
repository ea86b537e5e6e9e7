"""Spark ML in a session of its own: `python spark_ml.py [--remote] MASTER FOLDER`.

Loads the pipeline in FOLDER/saved, which another session wrote, then trains, saves and loads one of
its own; the network of that one is a class of this script. Prints what was found as JSON.
"""

import json
import sys
import warnings

import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import DataFrame, SparkSession
from spark_toys import QUIET, vectors

from flambeau.spark import TorchEstimator


class Line(torch.nn.Module):
    """Not importable elsewhere, as the classes of a notebook are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result


def predictions(model: PipelineModel, rows: DataFrame) -> list[float]:
    found = model.transform(rows).select("id", "prediction").collect()
    return [row.prediction for row in sorted(found)]


def main(session: SparkSession, folder: str) -> dict[str, object]:
    rows = vectors(session)
    other = predictions(PipelineModel.load(f"{folder}/saved"), rows)
    labelled = rows.drop("features").selectExpr("*", "int(a > 0) as positive")
    assembler = VectorAssembler(inputCols=list("abcd"), outputCol="features")
    stage = TorchEstimator(
        model=Line,
        labelCol="positive",
        loss="bce",
        epochs=5,
        batchSize=16,
        learningRate=0.3,
        numWorkers=2,
        fitParams=QUIET,
        checkpointDir=f"{folder}/runs",
    )
    logistic = LogisticRegression(labelCol="positive", maxIter=1)
    theirs = Pipeline(stages=[assembler, logistic]).fit(labelled)
    model = Pipeline(stages=[assembler, stage]).fit(labelled)
    evaluator = BinaryClassificationEvaluator(labelCol="positive")
    spark_auc = evaluator.evaluate(theirs.transform(labelled))
    auc = evaluator.evaluate(model.transform(labelled))
    model.write().overwrite().save(f"{folder}/own")
    model.write().overwrite().save(f"{folder}/own")
    model.stages[1].write().overwrite().save(f"{folder}/stage")
    model.stages[1].write().overwrite().save(f"{folder}/stage")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded = PipelineModel.load(f"{folder}/own")
    same = predictions(loaded, labelled) == predictions(model, labelled)
    by_value = any("code is in the saved model" in str(each.message) for each in told)
    return {
        "other": other,
        "auc": auc,
        "spark_auc": spark_auc,
        "same": same,
        "by_value": by_value,
    }


if __name__ == "__main__":
    builder = SparkSession.builder
    remote = sys.argv[1] == "--remote"
    session = (builder.remote if remote else builder.master)(sys.argv[-2]).getOrCreate()
    found = main(session, sys.argv[-1])
    session.stop()
    print(json.dumps(found))
