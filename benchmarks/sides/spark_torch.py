"""Both sides of the SparkTorch benchmark: the same script, whoever `sparktorch` is.

spark_torch.py SIDE vectors FROM FOLDER          the same rows with a column of vectors
spark_torch.py SIDE fit DATA MODE ITERATIONS...  fits one after the other, in one session
spark_torch.py SIDE transform DATA MORE_DATA     both, in one session
spark_torch.py ours nothing DATA MORE_DATA       the same without a model

SIDE is `ours` or `peer`.
"""

import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from spark_workload import (
    BATCH_ROWS,
    CLASSES,
    FEATURES,
    HELD_OUT,
    WORKERS,
    answer,
    draw,
    seconds,
    session,
)
from torch import nn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELD_OUT_ROWS = 5000
HIDDEN = 256


def network() -> nn.Module:
    """An MLP with the same weights at every call."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )


def vectors(source: str, folder: str) -> None:
    """Rows as SparkTorch takes them, in as many files as there are workers."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F

    rows = session().read.parquet(source)
    features = array_to_vector(F.col("features").cast("array<double>")).alias("features")
    chosen = rows.select(features, F.col("label").cast("double")).repartition(WORKERS)
    chosen.write.parquet(folder)
    answer(rows=rows.count())


def fit(data: str, mode: str, *iterations: str) -> None:
    """How long each fit took, and the accuracy after the last, on rows that were held out."""
    from sparktorch import SparkTorch, serialize_torch_obj

    rows = session().read.parquet(data).repartition(WORKERS).cache()
    rows.count()
    torch_object = serialize_torch_obj(network(), nn.CrossEntropyLoss(), torch.optim.Adam, lr=0.001)
    taken: list[float] = []
    model: Any = None
    for count in map(int, iterations):
        estimator = SparkTorch(
            inputCol="features",
            labelCol="label",
            torchObj=torch_object,
            mode=mode,
            iters=count,
            miniBatch=BATCH_ROWS,
            partitions=WORKERS,
            port=free_port(),
        )
        each, model = seconds(lambda estimator=estimator: estimator.fit(rows))
        taken.append(each)
    answer(seconds=taken, accuracy=accuracy(model.getPytorchModel()))


def free_port() -> int:
    """For SparkTorch's server, whose own port others may use."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def accuracy(trained: nn.Module) -> float:
    x, y = draw(HELD_OUT_ROWS, HELD_OUT)
    with torch.inference_mode():
        found = trained.eval()(torch.from_numpy(x)).argmax(1)
    return float((found == torch.from_numpy(y)).double().mean())


def transform(*data: str) -> None:
    """How long it took to predict each; of the columns, the predictions alone are asked for."""
    from sparktorch.inference import create_spark_torch_model

    stage = create_spark_torch_model(network())

    def predict(frame: "DataFrame") -> None:
        if side == "peer":
            frame = by_rows(frame)
        stage.transform(frame).select("predicted").write.format("noop").mode("overwrite").save()

    time_each(predict, data)


def nothing(*data: str) -> None:
    """The same with a function that does not look at the rows: what is left is Spark itself."""
    from pyspark.sql import functions as F

    def zeros(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for each in columns:
            yield pa.array(np.zeros(len(each)))

    def give(frame: "DataFrame") -> None:
        rows = by_rows(frame).withColumn("features", F.unwrap_udt("features")["values"])
        found = rows.select(F.arrow_udf(zeros, "double")("features"))
        found.write.format("noop").mode("overwrite").save()

    time_each(give, data)


def time_each(work: Callable[["DataFrame"], None], data: Iterable[str]) -> None:
    """How long the work took for each folder."""
    spark = session()
    taken = [seconds(lambda f=folder: work(spark.read.parquet(f)))[0] for folder in data]
    answer(seconds=taken, rows=[spark.read.parquet(folder).count() for folder in data])


def by_rows(frame: "DataFrame") -> "DataFrame":
    """Spark 4.3 cannot give Python vectors straight from Parquet; Flambeau sees to that itself."""
    from pyspark.sql import functions as F

    always = F.monotonically_increasing_id() >= 0
    return frame.withColumn("features", F.when(always, F.col("features")))


def be_ours() -> None:
    """Make `import sparktorch` mean Flambeau."""
    from flambeau.compat import alias

    alias("sparktorch")


def stay_on_this_machine() -> None:
    """SparkTorch's server listens on all interfaces; here it must not."""
    from flask import Flask
    from sparktorch.server import Server

    run = Flask.run
    Flask.run = lambda app, host, **options: run(app, host="127.0.0.1", **options)
    Server.determine_master = staticmethod(lambda port: f"127.0.0.1:{port}")


if __name__ == "__main__":
    side, command, *arguments = sys.argv[1:]
    be_ours() if side == "ours" else stay_on_this_machine()
    commands = {"vectors": vectors, "fit": fit, "transform": transform, "nothing": nothing}
    commands[command](*arguments)
