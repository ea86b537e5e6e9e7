"""A model's outputs as columns that Spark's evaluators accept."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.config.settings import Settings
from flambeau.inference.outputs import prediction_columns

PREDICTION, PROBABILITY, RAW = "prediction", "probability", "raw"
_BINARY = ("bce", "bce_prob")
_CLASSES = ("cross_entropy", "nll")


class Output(Settings):
    """Column of the result: its task (if there are several), its role, and its type."""

    task: str | None
    role: str
    several: bool

    @property
    def key(self) -> str:
        """Name of the column in the result of the workers."""
        return self.role if self.task is None else f"{self.task}_{self.role}"

    @property
    def spark_type(self) -> str:
        """Spark type of the column in the result of the workers."""
        return "array<double>" if self.several else "double"

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.list_(pa.float64()) if self.several else pa.float64()


def spark_columns(
    output: Any, loss: str | Mapping[str, str | None] | None
) -> dict[Output, pa.Array]:
    """Return the columns for one batch of outputs, by the loss that the model was trained with."""
    tasks = _tasks(output, loss)
    return {
        Output(task=task, role=role, several=pa.types.is_list(column.type)): column
        for task, (part, meaning) in tasks.items()
        for role, column in _columns(part, meaning).items()
    }


def _tasks(output: Any, loss: Any) -> dict[str | None, tuple[Any, str | None]]:
    if isinstance(output, tuple | list):
        names = loss if isinstance(loss, Mapping) else [f"output{i}" for i in range(len(output))]
        output = dict(zip(names, output, strict=True))
    if not isinstance(output, Mapping):
        return {None: (output, loss)}
    meanings = loss if isinstance(loss, Mapping) else dict.fromkeys(output, loss)
    return {task: (part, meanings.get(task)) for task, part in output.items()}


def _columns(output: Any, loss: str | None) -> dict[str, pa.Array]:
    found = prediction_columns(output, loss)
    raw = _doubles(prediction_columns(output, None)["prediction"])
    prediction = _doubles(found["prediction"])
    if "probability" in found:  # of one label: both classes, as Spark expects
        chance = _doubles(found["probability"]).to_numpy()
        logits = _logits(raw.to_numpy(), loss)
        return {
            PREDICTION: prediction,
            PROBABILITY: _lists(np.stack([1 - chance, chance], axis=1)),
            RAW: _lists(np.stack([-logits, logits], axis=1)),
        }
    if "probabilities" not in found:
        return {PREDICTION: prediction}
    if loss in _BINARY:  # the labels that apply
        prediction = _which(prediction)
    return {PREDICTION: prediction, PROBABILITY: _doubles(found["probabilities"]), RAW: raw}


def _logits(raw: np.ndarray[Any, Any], loss: str | None) -> np.ndarray[Any, Any]:
    if loss != "bce_prob":
        return raw
    clipped = np.clip(raw, 1e-15, 1 - 1e-15)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))


def _which(applies: pa.Array) -> pa.Array:
    """Return the positions of the ones in lists of 0 and 1."""
    flat = applies.flatten().to_numpy()
    width = len(flat) // len(applies) if len(applies) else 0
    rows = flat.reshape(len(applies), width) > 0
    offsets = np.concatenate([[0], np.cumsum(rows.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.nonzero(rows)[1].astype(np.float64)))


def _doubles(column: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_list(column.type):
        flat = pc.cast(column.flatten(), pa.float64())
        offsets = np.arange(len(column) + 1, dtype=np.int32) * column.type.list_size
        return pa.ListArray.from_arrays(offsets, flat)
    return pc.cast(column, pa.float64())


def _lists(rows: np.ndarray[Any, Any]) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(offsets, pa.array(rows.reshape(-1)))
