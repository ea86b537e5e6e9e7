"""`SparkTorch`, which trains a network on a DataFrame, and `SparkTorchModel`, which applies it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, final

from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, TypeConverters
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType
from torch import nn

from flambeau.compat.sparktorch.training import train
from flambeau.compat.sparktorch.util import TorchObject, from_text
from flambeau.errors import ConfigError
from flambeau.spark.model import TorchModel
from flambeau.spark.params import Setting, SettingParams
from flambeau.spark.persistence import StageReader, StageWriter

MODES = ("synchronous", "hogwild")
_OUTPUT = "_sparktorch_output"


def _mode(value: Any) -> str:
    if value == "async":  # the name in SparkTorch's documentation
        warnings.warn(
            "mode='async' is SparkTorch's other name for its synchronous mode, and trains as "
            "mode='synchronous'; mode='hogwild' is asynchronous",
            stacklevel=2,
        )
        return "synchronous"
    if value not in MODES:
        raise TypeError(f"mode={value!r}: use {' or '.join(map(repr, MODES))}")
    return str(value)


class OutputParams(SettingParams):
    """Params for the input column and the output of a network."""

    inputCol = Setting("the column with the features", "features", TypeConverters.toString)  # noqa: N815
    predictionCol = Setting("the column for predictions", "predicted", TypeConverters.toString)  # noqa: N815
    useVectorOut = Setting(  # noqa: N815
        "whether predictions are vectors with all outputs; otherwise the output, or the number of "
        "the largest",
        False,
        TypeConverters.toBoolean,
    )

    def getVectorOut(self) -> bool:  # noqa: N802 - SparkTorch's name
        """Return `useVectorOut`."""
        return bool(self.getOrDefault("useVectorOut"))


@final
class SparkTorchModel(OutputParams, Model, MLReadable["SparkTorchModel"], MLWritable):
    """A trained network. `modStr` is its text, from `convert_to_serialized_torch`."""

    def __init__(self, *, modStr: str | None = None, **params: Any) -> None:  # noqa: N803
        super().__init__(**params)
        self._stage: TorchModel | None = None
        if modStr is not None:
            network = from_text(modStr, nn.Module, "modStr is convert_to_serialized_torch(network)")
            self._stage = TorchModel.of(network)

    def getPytorchModel(self) -> nn.Module:  # noqa: N802
        """Return the network with its weights."""
        return self._trained().torch()

    def write(self) -> StageWriter:
        """Return the writer of the model."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Return the reader of models."""
        return StageReader(cls)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        stage = self._trained()
        params: dict[Param[Any], Any] = {
            stage.featuresCol: self.getOrDefault("inputCol"),
            stage.predictionCol: _OUTPUT,
            stage.probabilityCol: None,
            stage.rawPredictionCol: None,
        }
        found = stage.copy(params).transform(dataset)
        prediction = self._prediction(found)
        return found.withColumn(self.getOrDefault("predictionCol"), prediction).drop(_OUTPUT)

    def _prediction(self, found: DataFrame) -> Column:
        output = F.col(_OUTPUT)
        several = isinstance(found.schema[_OUTPUT].dataType, ArrayType)
        if self.getVectorOut():
            return array_to_vector(output if several else F.array(output))
        if several:
            return (F.array_position(output, F.array_max(output)) - 1).cast("double")
        return output

    def _trained(self) -> TorchModel:
        if self._stage is None:
            raise ConfigError(
                "this SparkTorchModel is empty: use SparkTorch.fit, or create_spark_torch_model"
            )
        return self._stage

    def _with(self, stage: TorchModel) -> Self:
        self._stage = stage
        return self

    def _files(self, objects: Mapping[str, Any]) -> Path:
        return self._trained()._files(objects)

    def _leave(self, path: str) -> None:
        self._trained()._leave(path)

    def _load(self, path: str, session: Any) -> None:
        self._stage = TorchModel()
        self._stage._load(path, session)


@final
class SparkTorch(OutputParams, Estimator[SparkTorchModel], MLReadable["SparkTorch"], MLWritable):
    """Estimator that trains the network of `torchObj` (by `serialize_torch_obj`) on a DataFrame.

    `useBarrier`, `port` and `acquireLock` are accepted but have no effect: all training runs in a
    barrier stage, servers choose free ports, and updates need no lock.
    """

    labelCol = Setting(  # noqa: N815
        "the label; None: the input is learnt (auto-encoder)", None, TypeConverters.toString
    )
    torchObj = Setting("what serialize_torch_obj gave", "", TypeConverters.toString)  # noqa: N815
    mode = Setting("'synchronous' (all-reduce) or 'hogwild' (servers)", "synchronous", _mode)
    device = Setting("'cpu' or 'cuda'", "cpu", TypeConverters.toString)
    iters = Setting("the gradient steps of each partition", 10, TypeConverters.toInt)
    miniBatch = Setting(  # noqa: N815
        "the rows of a partition for a step, by chance; -1: all", -1, TypeConverters.toInt
    )
    validationPct = Setting(  # noqa: N815
        "the share of rows, by chance, that is for validation", 0.0, TypeConverters.toFloat
    )
    earlyStopPatience = Setting(  # noqa: N815
        "stop after this number of steps without a better loss of the validation rows, or of all "
        "if there are none; -1: never",
        -1,
        TypeConverters.toInt,
    )
    partitions = Setting(
        "how many processes train; -1: as many as the DataFrame has partitions",
        -1,
        TypeConverters.toInt,
    )
    partitionShuffles = Setting(  # noqa: N815
        "how many times `iters` steps are made", 1, TypeConverters.toInt
    )
    useBarrier = Setting("without effect", False, TypeConverters.toBoolean)  # noqa: N815
    verbose = Setting("1: show how training goes", 0, TypeConverters.toInt)
    port = Setting("without effect", 3000, TypeConverters.toInt)
    acquireLock = Setting("without effect", True, TypeConverters.toBoolean)  # noqa: N815
    compileMode = Setting(  # noqa: N815
        "compile the network, in this mode of torch.compile", None, TypeConverters.toString
    )

    def getAqcuireLock(self) -> bool:  # noqa: N802 - SparkTorch's spelling
        """Return `acquireLock`."""
        return bool(self.getOrDefault("acquireLock"))

    def getBarrier(self) -> bool:  # noqa: N802
        """Return `useBarrier`."""
        return bool(self.getOrDefault("useBarrier"))

    def write(self) -> StageWriter:
        """Return the writer of the estimator."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Return the reader of estimators."""
        return StageReader(cls)

    def _fit(self, dataset: DataFrame) -> SparkTorchModel:
        advice = "torchObj is serialize_torch_obj(model, criterion, optimizer, ...)"
        torch_object = from_text(self.getOrDefault("torchObj"), TorchObject, advice)
        stage = train(self.getOrDefault, torch_object, dataset)
        return self._copyValues(SparkTorchModel())._with(stage)

    def _files(self, objects: Mapping[str, Any]) -> None:
        """Return None: all params are texts and numbers, so no files are needed."""

    def _leave(self, path: str) -> None:
        """Do nothing: an estimator keeps no files where it was loaded from."""

    def _load(self, path: str, session: Any) -> None:
        """Do nothing: the params are all that is stored."""
