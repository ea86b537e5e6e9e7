"""Results of a job: tables and dense weights in a folder, and the trained model file.

The folder (`angelModelOutputPath`) has `weights.parquet` and `embedding.parquet`, each with the
columns `id` and `vector`, and `dense.safetensors` with `bias`, `mats.0`, `mats.1` and so on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from flambeau.checkpoint.durable import write_atomically
from flambeau.compat.angel import torchscript
from flambeau.errors import DataError
from flambeau.tables.saved.mapped import MappedTable
from flambeau.tables.saved.table_export import vectors, write_vectors

DENSE = "dense.safetensors"
ROWS_AT_ONCE = 1 << 16

Dense = Mapping[str, Tensor]
Tables = Mapping[str, MappedTable]


def table_file(folder: Path, name: str) -> Path:
    """Return the file of a table in a folder; raise `DataError` if it does not exist."""
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise DataError(
            f"{folder} has no {path.name}: give the folder that an earlier job wrote as "
            "angelModelOutputPath, for a model of the same type"
        )
    return path


def write_folder(dense: Dense, tables: Tables, folder: Path) -> None:
    """Write the dense weights and the tables of a trained model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_vectors(table.spec, vectors(table), folder / f"{name}.parquet")
    content = {name: tensor.detach().contiguous() for name, tensor in dense.items()}
    write_atomically(folder / DENSE, safetensors.torch.save(content))


def load_dense(own: Dense, folder: Path) -> None:
    """Copy the dense weights in a folder to a model's own."""
    path = folder / DENSE
    try:
        found = safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    shapes = {name: list(tensor.shape) for name, tensor in own.items()}
    given = {name: list(tensor.shape) for name, tensor in found.items()}
    if shapes != given:
        raise DataError(f"{path} is of another model: it has {given}, and the model {shapes}")
    for name, tensor in own.items():
        tensor.detach().copy_(found[name])


def write_torch(dense: Dense, tables: Tables, original: Path, out: Path) -> None:
    """Write the model file with trained weights, whose `forward` works with plain torch.

    `weights` and `embedding` have `input_dim` rows. An id that was never trained has the mean of
    the initial values of new rows.
    """
    scripted: Any = torchscript.read(original)
    for name, table in tables.items():
        setattr(scripted, name, nn.Parameter(_rows(table, scripted.input_dim)))
    weights = {name: tensor.detach().clone() for name, tensor in dense.items()}
    scripted.bias = nn.Parameter(weights.pop("bias"))
    if weights:
        scripted.mats = [weights[f"mats.{index}"] for index in range(len(weights))]
    torchscript.write(scripted.eval(), out)


def _rows(table: MappedTable, count: int) -> Tensor:
    out = torch.empty(count, table.spec.dim)
    for start in range(0, count, ROWS_AT_ONCE):
        ids = np.arange(start, min(start + ROWS_AT_ONCE, count))
        out[start : start + len(ids)] = torch.from_numpy(table.pull(ids))
    return out
