"""Conversion of a model's raw output to prediction columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from flambeau.errors import ModelError


def prediction_columns(
    output: Any, loss: str | Mapping[str, str | None] | None
) -> dict[str, pa.Array]:
    """Return the columns for one batch of outputs, by the loss the model was trained with.

    `bce`: `prediction` (0 or 1) and `probability`. `cross_entropy` and `nll`: `prediction` (the
    class) and `probabilities`. `in_batch_softmax`: `prediction`, the score of the row's own item.
    Any other: `prediction`, the output itself. With several outputs (`loss` by task), names are
    prefixed by task.
    """
    if isinstance(output, Mapping):
        return {
            f"{task}_{name}": column
            for task, part in output.items()
            for name, column in prediction_columns(part, _loss_of(task, loss)).items()
        }
    if isinstance(output, tuple | list):
        numbered = [f"output{index}" for index in range(len(output))]
        names = list(loss) if isinstance(loss, Mapping) else numbered
        return prediction_columns(dict(zip(names, output, strict=True)), loss)
    if not isinstance(output, Tensor):
        raise ModelError(f"cannot write predictions of type {type(output).__name__}")
    assert not isinstance(loss, Mapping)
    return _columns(output.detach().float().cpu(), loss)


def _loss_of(task: str, loss: str | Mapping[str, str | None] | None) -> str | None:
    return loss.get(task) if isinstance(loss, Mapping) else loss


def _columns(output: Tensor, loss: str | None) -> dict[str, pa.Array]:
    if loss == "in_batch_softmax" and output.dim() == 2:
        return {"prediction": _array(output.diagonal())}  # the row's own item
    flat = output.squeeze(1) if output.dim() == 2 and output.shape[1] == 1 else output
    if loss in ("bce", "bce_prob"):
        probability = torch.sigmoid(flat) if loss == "bce" else flat
        name = "probability" if flat.dim() == 1 else "probabilities"
        return {
            "prediction": _classes((probability > 0.5).long(), probability),
            name: _array(probability),
        }
    if loss in ("cross_entropy", "nll") and flat.dim() == 2:
        probabilities = torch.softmax(flat, dim=1) if loss == "cross_entropy" else flat.exp()
        return {
            "prediction": _classes(flat.argmax(dim=1), flat),
            "probabilities": _array(probabilities),
        }
    return {"prediction": _array(flat)}


def _classes(values: Tensor, output: Tensor) -> pa.Array:
    """Return classes, which are null where the output is NaN."""
    if values.dim() != 1:
        return _array(values)
    unknown = output.isnan().reshape(len(values), -1).any(dim=1)
    return pa.array(values.numpy(), mask=unknown.numpy())


def _array(values: Tensor) -> pa.Array:
    """Return one value per row; rows of several values as lists of fixed size."""
    if values.dim() == 1:
        return pa.array(values.numpy())
    rows = values.reshape(len(values), -1)
    flat = pa.array(np.ascontiguousarray(rows.numpy()).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
