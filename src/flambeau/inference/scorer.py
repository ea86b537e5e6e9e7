"""Predictions of a model for batches of rows, as Arrow."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc
import torch

from flambeau.data.batch import Batch, Column
from flambeau.data.binding import Binder
from flambeau.data.jagged import Jagged
from flambeau.errors import DataError
from flambeau.inference.outputs import prediction_columns


@final
class Scorer:
    """Application of a model to batches. The columns `copied` (keys, labels) precede predictions.

    `model` is a module in evaluation mode, or any function of the arguments that the binder
    returns.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        loss: str | Mapping[str, str | None] | None,
        copied: tuple[str, ...],
        transform: Callable[[Batch], Batch] | None = None,
    ) -> None:
        self._model, self._loss, self._copied = model, loss, copied
        self._transform = transform
        self._told = False

    def score(self, batch: Batch, binder: Binder) -> pa.RecordBatch:
        """Return one row of predictions for each row of the batch, in order."""
        prepared = self._transform(batch) if self._transform is not None else batch
        positional, named = binder.arguments(prepared)
        with torch.inference_mode():
            output = self._model(*positional, **named)
        columns = {name: _copied_array(binder.key(batch, name), name) for name in self._copied}
        predicted = prediction_columns(output, self._loss)
        self._tell_of_nan(predicted, batch.size)
        columns |= predicted
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(
                f"{batch.size} rows gave columns of different lengths ({lengths}): forward() must "
                "give one output for each row"
            )
        return pa.RecordBatch.from_pydict(columns)

    def _tell_of_nan(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        """Warn once if some rows have no prediction."""
        for name, column in columns.items() if not self._told else ():
            if not pa.types.is_floating(column.type):
                continue
            missing = pc.sum(pc.is_nan(column)).as_py() or 0
            if missing:
                self._told = True
                warnings.warn(
                    f"{name} is NaN for {missing} of the first {rows} rows with any: numbers are "
                    "missing (NaN) in the inputs, or the model diverged",
                    stacklevel=2,
                )
                return


def _copied_array(column: Column, name: str) -> pa.Array:
    if isinstance(column, Jagged):
        raise DataError(f"keys: column '{name}' has several ids in a row, or none; leave it out")
    if not isinstance(column, torch.Tensor):
        return pa.array(column)
    if column.dim() == 1:
        return pa.array(column.numpy())
    return pa.array(list(column.reshape(len(column), -1).numpy()))
