"""A convolutional network that is built on the workers, with SparkTorch's own names.

flambeau run --alias sparktorch examples/sparktorch/simple_cnn.py
"""

import torch
from cnn_network import Net
from digits import PIXELS, read_digits
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.pipeline import Pipeline
from pyspark.sql import SparkSession
from sparktorch import SparkTorch, serialize_torch_obj_lazy
from torch import nn

if __name__ == "__main__":
    spark = SparkSession.builder.appName("examples").master("local[2]").getOrCreate()
    train, test = read_digits(spark).randomSplit([0.8, 0.2], seed=1)

    torch_obj = serialize_torch_obj_lazy(
        model=Net,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        optimizer_params={"lr": 0.01},
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

    model = Pipeline(stages=[vector_assembler, spark_model]).fit(train)
    evaluator = MulticlassClassificationEvaluator(
        labelCol="_c0", predictionCol="predictions", metricName="accuracy"
    )
    print(f"Test accuracy: {evaluator.evaluate(model.transform(test)):.3f}")
    spark.stop()
