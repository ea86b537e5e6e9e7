"""A driver script as SparkTorch's users have them: `sparktorch_driver.py FOLDER`."""

import sys

import torch
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.pipeline import Pipeline, PipelineModel
from pyspark.sql import SparkSession
from sparktorch import PysparkPipelineWrapper, SparkTorch, serialize_torch_obj
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


if __name__ == "__main__":
    spark = SparkSession.builder.appName("examples").master("local[2]").getOrCreate()
    df = spark.createDataFrame([(float(i % 3), float(i), 1.0) for i in range(40)])
    torch_obj = serialize_torch_obj(
        model=Net(), criterion=nn.MSELoss(), optimizer=torch.optim.Adam, lr=0.001
    )
    spark_model = SparkTorch(
        inputCol="features",
        labelCol="_1",
        predictionCol="predictions",
        torchObj=torch_obj,
        iters=3,
        partitions=2,
    )
    assembler = VectorAssembler(inputCols=["_2", "_3"], outputCol="features")
    fitted = Pipeline(stages=[assembler, spark_model]).fit(df)
    fitted.save(sys.argv[1])
    loaded = PysparkPipelineWrapper.unwrap(PipelineModel.load(sys.argv[1]))
    print("predictions" in loaded.transform(df).first())
    spark.stop()
