"""Scikit-learn's digits as a CSV file, in the form of SparkTorch's `mnist_train.csv`."""

from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from sklearn.datasets import load_digits

CSV = Path("data/digits.csv")
PIXELS = [f"_c{number}" for number in range(1, 65)]


def read_digits(spark: SparkSession) -> DataFrame:
    """Return 1,797 images of 8 x 8 pixels from 0 to 16: `_c0` is the digit, then come `PIXELS`."""
    if not CSV.exists():
        digits = load_digits()
        CSV.parent.mkdir(exist_ok=True)
        np.savetxt(CSV, np.column_stack([digits.target, digits.data]), "%d", delimiter=",")
    return spark.read.option("inferSchema", "true").csv(str(CSV)).repartition(2).cache()
