"""A network on a DataFrame: `python examples/spark/train.py`, or the same with spark-submit."""

import torch
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from torch import Tensor

import flambeau as fb


class Net(torch.nn.Module):
    """Whether two numbers have the same sign."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x).squeeze(1)
        return logits


def main(workers: int = 2) -> fb.Result:
    """Make rows, train on them with all-reduce, and say how good it is."""
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(20_000).select(f.randn(1).alias("a"), f.randn(2).alias("b"))
    rows = rows.withColumn("same", (f.col("a") * f.col("b") > 0).cast("float"))
    train, valid = rows.randomSplit([0.9, 0.1], seed=1)
    return fb.fit(
        Net,
        train=train,
        valid=valid,
        inputs={"x": ["a", "b"]},
        label="same",
        loss="bce",
        metrics=["auc"],
        optimizer=fb.optim("adam", lr=0.01),
        epochs=5,
        cluster=fb.Spark(workers),
    )


if __name__ == "__main__":
    print(main())
