"""A Spark pipeline that an earlier version saved."""

from pathlib import Path
from typing import TYPE_CHECKING

from saved_copy import copy_saved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_pipeline_of_an_earlier_version_scores(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.ml import PipelineModel

    saved = copy_saved(tmp_path / "saved")
    rows = spark.read.csv(str(saved / "clicks"), header=True, inferSchema=True)
    scored = PipelineModel.load(str(saved / "pipeline")).transform(rows).collect()
    assert len(scored) == 240
    assert {row.prediction for row in scored} <= {0.0, 1.0}
    assert len({tuple(row.rawPrediction) for row in scored}) > 1
