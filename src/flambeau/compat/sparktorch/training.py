"""Conversion of SparkTorch's parameters to those of `TorchEstimator`."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from flambeau.checkpoint.user_code import importable_path
from flambeau.clusters.spark.cluster import setting, slots_of
from flambeau.compat.sparktorch.criterion import Criterion
from flambeau.compat.sparktorch.util import TorchObject
from flambeau.config import AllReduce, ParameterServer, optim
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError
from flambeau.spark.estimator import TorchEstimator
from flambeau.spark.model import TorchModel
from flambeau.spark.training import quoted

_VALIDATES = "_sparktorch_validates"
#: Spark's default for a range is as many partitions as tasks can run at a time.
_PLENTY = 1 << 20

Get = Callable[[str], Any]


def train(get: Get, given: TorchObject, dataset: DataFrame) -> TorchModel:
    """Train the network; `get` returns a parameter by name."""
    rounds = _positive(get, "iters") * _positive(get, "partitionShuffles")
    columns = [get("inputCol")] if get("labelCol") is None else [get("inputCol"), get("labelCol")]
    rows = dataset.select(*quoted(columns, dataset))
    workers = _workers(get("partitions"), rows)
    hogwild = get("mode") == "hogwild"
    # In one step of all-reduce, all workers take part; in hogwild mode, a step is of one worker.
    round_steps = workers if hogwild else 1
    steps = rounds * round_steps
    stops_early = get("earlyStopPatience") > 0
    validation: dict[str, Any] = {"validationFraction": get("validationPct")}
    if stops_early and not get("validationPct"):
        rows = rows.withColumn(_VALIDATES, F.explode(F.array(F.lit(False), F.lit(True))))
        validation = {"validationIndicatorCol": _VALIDATES}
    return TorchEstimator(
        model=given.model,
        modelParams=given.model_parameters or None,
        featuresCol=get("inputCol"),
        labelCol=get("labelCol"),
        loss=Criterion(given.criterion, get("inputCol"), get("labelCol")),
        optimizer=_optimizer(given),
        strategy=ParameterServer(consistency="asynchronous") if hogwild else AllReduce(),
        numWorkers=workers,
        batchSize=_batch_size(get("miniBatch"), rows),
        epochs=steps,
        maxSteps=steps,
        device="cuda" if get("device") in ("cuda", "gpu") else get("device"),
        fitParams=_fit_params(get, stops_early, round_steps),
        **validation,
    ).fit(rows)


def _fit_params(get: Get, stops_early: bool, round_steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "checkpoints": {"every_epochs": None},
        "compute": {"compile": get("compileMode") or False},
        "loading": {"drop_last": "when_possible"},  # each iteration has a whole mini-batch
        "evaluation": {"every_epochs": None, "every_steps": round_steps if stops_early else None},
        "observe": {"progress": "auto" if get("verbose") else "none", "tensorboard": False},
    }
    if stops_early:
        found["early_stopping"] = {"patience": get("earlyStopPatience")}
    return found


def _optimizer(given: TorchObject) -> Any:
    if importable_path(given.optimizer) is not None:
        return optim(given.optimizer, **given.optimizer_params)
    return functools.partial(given.optimizer, **given.optimizer_params)


def _workers(partitions: int, rows: DataFrame) -> int:
    session = rows.sparkSession
    master, cores = setting(session, "spark.master", ""), setting(session, "spark.task.cpus", "1")
    at_once = slots_of(master, int(cores)) or _partitions(session.range(_PLENTY))
    wanted = partitions if partitions > 0 else _partitions(rows)
    if partitions > at_once:
        warnings.warn(
            f"partitions={partitions}, but this session runs {number_of(at_once, 'task')} at a "
            f"time: {number_of(at_once, 'process', 'processes')} will train",
            stacklevel=2,
        )
    return max(1, min(wanted, at_once))


def _partitions(frame: DataFrame) -> int:
    """Return the number of partitions that have rows."""
    return frame.select(F.spark_partition_id().alias("number")).distinct().count()


def _batch_size(mini_batch: int, rows: DataFrame) -> int:
    return mini_batch if mini_batch > 0 else max(1, rows.count())


def _positive(get: Get, name: str) -> int:
    value = int(get(name))
    if value < 1:
        raise ConfigError(f"{name}={value}: give at least 1")
    return value
