"""A dense network, with SparkTorch's own names.

flambeau run --alias sparktorch examples/sparktorch/simple_dnn.py [FOLDER FOR THE PIPELINE]
"""

import sys

import torch
from digits import PIXELS, read_digits
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.pipeline import Pipeline, PipelineModel
from pyspark.sql import SparkSession
from sparktorch import PysparkPipelineWrapper, SparkTorch, serialize_torch_obj
from torch import nn

if __name__ == "__main__":
    spark = SparkSession.builder.appName("examples").master("local[2]").getOrCreate()
    df = read_digits(spark)

    network = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    torch_obj = serialize_torch_obj(
        model=network, criterion=nn.CrossEntropyLoss(), optimizer=torch.optim.Adam, lr=0.005
    )
    vector_assembler = VectorAssembler(inputCols=PIXELS, outputCol="features")
    spark_model = SparkTorch(
        inputCol="features",
        labelCol="_c0",
        predictionCol="predictions",
        torchObj=torch_obj,
        iters=60,
        miniBatch=128,
        verbose=1,
    )

    model = Pipeline(stages=[vector_assembler, spark_model]).fit(df)
    if len(sys.argv) > 1:
        model.write().overwrite().save(sys.argv[1])
        model = PysparkPipelineWrapper.unwrap(PipelineModel.load(sys.argv[1]))

    evaluator = MulticlassClassificationEvaluator(
        labelCol="_c0", predictionCol="predictions", metricName="accuracy"
    )
    print(f"Train accuracy: {evaluator.evaluate(model.transform(df)):.3f}")
    spark.stop()
