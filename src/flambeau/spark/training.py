"""Training of an estimator: from its params and a DataFrame to a run of `flambeau.fit`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch
import torch.nn.functional as F
from pyspark.sql import DataFrame
from pyspark.sql import functions as SF
from pyspark.sql.types import StringType
from torch import Tensor

from flambeau.config import EarlyStopping, Spark
from flambeau.driver.fit import fit
from flambeau.driver.result import Result
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.spark import values
from flambeau.spark.folder import MODEL
from flambeau.spark.inputs import Inputs
from flambeau.spark.params import TrainingParams

_RECONSTRUCTIONS: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "mae": F.l1_loss,
    "huber": F.huber_loss,
}


def train(
    params: TrainingParams, dataset: DataFrame, inputs: Inputs, model: Any, run_dir: Path
) -> Result:
    """Train `model` on the rows of a DataFrame."""
    get = params.getOrDefault
    label, loss = _label_and_loss(params, dataset, inputs)
    targets = [*_names(label), *_names(get(params.weightCol))]
    columns = quoted([*inputs.columns, *targets], dataset)
    _refuse_text(targets, dataset)
    train_rows, valid_rows = _split(params, dataset)
    arguments = {
        "inputs": inputs.binding,
        "label": label,
        "weight": get(params.weightCol),
        "loss": loss,
        "optimizer": values.build_optimizer(get(params.optimizer), get(params.learningRate)),
        "table_optimizer": values.build_optimizer(get(params.tableOptimizer), None),
        "metrics": get(params.metrics),
        "batch_size": get(params.batchSize),
        "epochs": get(params.epochs),
        "max_steps": get(params.maxSteps),
        "strategy": values.build_strategy(get(params.strategy)),
        "compute": {"device": get(params.device)},
        "early_stopping": _early_stopping(params, valid_rows is not None),
        "init_from": _initial(get(params.initialModel)),
        "seed": get(params.seed),
    }
    further = get(params.fitParams) or {}
    if "compute" in further:
        further = {**further, "compute": {**arguments["compute"], **further["compute"]}}
    return fit(
        model,
        train=train_rows.select(*columns),
        valid=None if valid_rows is None else valid_rows.select(*columns),
        cluster=Spark(get(params.numWorkers), session=dataset.sparkSession),
        run_dir=run_dir,
        **{**arguments, **further},
    )


def _label_and_loss(params: TrainingParams, dataset: DataFrame, inputs: Inputs) -> tuple[Any, Any]:
    """Return label and loss for `fit`; without a label, the target is the features."""
    label, loss = params.getOrDefault(params.labelCol), params.getOrDefault(params.loss)
    if label not in dataset.columns and not params.isSet(params.labelCol):
        label = None
    if label is not None or loss is None or not isinstance(loss, str):
        return label, loss
    if loss not in _RECONSTRUCTIONS:
        raise ConfigError(
            f"loss='{loss}' needs labelCol; without one the features are learnt (auto-encoder), "
            f"with loss {', '.join(_RECONSTRUCTIONS)}"
        )
    return None, Reconstruction(loss, inputs.columns)


@final
class Reconstruction:
    """Loss of an auto-encoder: the difference of output and features, whatever their shapes."""

    def __init__(self, loss: str, columns: tuple[str, ...]) -> None:
        self._loss, self._columns = loss, columns

    def __call__(self, output: Tensor, batch: Any) -> Tensor:
        """Return the loss of each row."""
        columns = [batch[name] for name in self._columns]
        if not all(isinstance(column, Tensor) for column in columns):
            raise ModelError("without labelCol the features are learnt, which must be numbers")
        parts = [column.reshape(batch.size, -1) for column in columns]
        wanted = torch.cat(parts, dim=1).to(output.dtype)
        losses: Tensor = _RECONSTRUCTIONS[self._loss](output.flatten(1), wanted, reduction="none")
        return losses.mean(1)


def _split(params: TrainingParams, dataset: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows to train on, and the rows to validate on."""
    column = params.getOrDefault(params.validationIndicatorCol)
    share = params.getOrDefault(params.validationFraction)
    if column is not None and share:
        raise ConfigError("give validationIndicatorCol or validationFraction, not both")
    if column is not None:
        if column not in dataset.columns:
            raise DataError(f"there is no column '{column}' (validationIndicatorCol)")
        is_valid = SF.coalesce(SF.col(f"`{column}`").cast("boolean"), SF.lit(False))
        return dataset.filter(~is_valid), dataset.filter(is_valid)
    if share:
        seed = params.getOrDefault(params.seed)
        kept, held_out = dataset.randomSplit([1 - share, share], seed)
        return kept, held_out
    return dataset, None


def _early_stopping(params: TrainingParams, validates: bool) -> EarlyStopping | None:
    patience = params.getOrDefault(params.earlyStoppingPatience)
    if not patience:
        return None
    if not validates:
        raise ConfigError(
            "earlyStoppingPatience needs rows to validate on: set validationFraction or "
            "validationIndicatorCol"
        )
    return EarlyStopping(
        metric=params.getOrDefault(params.earlyStoppingMetric),
        patience=patience,
        min_delta=params.getOrDefault(params.earlyStoppingMinDelta),
    )


def _initial(path: str | None) -> str | None:
    """Return the initial weights in the form for `fit`: a run, or the folder of a model."""
    saved = Path(path or "") / "files"
    return str(saved) if path is not None and (saved / MODEL).is_file() else path


def quoted(names: list[str], dataset: DataFrame) -> list[str]:
    """Return the columns, each once, quoted so that Spark accepts any name."""
    for name in names:
        if name not in dataset.columns:
            known = ", ".join(dataset.columns)
            raise DataError(f"there is no column '{name}'; the DataFrame has {known}")
    return [f"`{name}`" for name in dict.fromkeys(names)]


def _refuse_text(names: list[str], dataset: DataFrame) -> None:
    for name in names:
        if isinstance(dataset.schema[name].dataType, StringType):
            raise DataError(
                f"column '{name}' holds text, where numbers are needed: give labels numbers with "
                "StringIndexer, or cast the column"
            )


def _names(columns: Any) -> list[str]:
    if columns is None or isinstance(columns, str):
        return [] if columns is None else [columns]
    return list(columns.values() if isinstance(columns, dict) else columns)
