"""Executors that are processes of their own."""

from pathlib import Path
from typing import TYPE_CHECKING

from test_spark_environment import barrier_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_two_executors_work_outside_the_package(
    local_cluster: "SparkSession", spark_folder: Path
) -> None:
    assert len({parent for _, parent in barrier_stage(local_cluster)}) == 2
    work = spark_folder / "home" / "work"
    assert len(list(work.glob(f"{local_cluster.sparkContext.applicationId}/*"))) == 2
