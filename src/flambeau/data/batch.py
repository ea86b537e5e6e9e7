"""A batch of rows as tensors, by column name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch

from flambeau.data import jagged
from flambeau.data.jagged import Jagged

Column = torch.Tensor | Jagged | np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Batch(Mapping[str, Column]):
    """Rows as columns: the first dimension of the tensor `batch["age"]` is the row.

    A column with any number of ids in a row is a `Jagged`. Columns that are not numbers (strings,
    kept for `keys=`) are numpy object arrays. `epoch` and `index` identify the batch within the
    training; random augmentation depends on them. `left_out` counts rows that were read with it but
    are not trained on.
    """

    columns: Mapping[str, Column]
    size: int
    epoch: int = field(default=0, compare=False)
    index: int = field(default=0, compare=False)
    left_out: int = field(default=0, compare=False)

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and index, which are different for all batches of a worker."""
        return self.epoch, self.index

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def slice(self, start: int, stop: int) -> "Batch":
        """Return rows `start` to `stop` as views, without copying."""
        columns = {
            name: column.slice(start, stop) if isinstance(column, Jagged) else column[start:stop]
            for name, column in self.columns.items()
        }
        return Batch(columns, min(stop, self.size) - start, self.epoch, self.index)

    def take(self, rows: torch.Tensor) -> "Batch":
        """Return copies of the given rows, in that order."""
        taken: dict[int, Column] = {}  # a column may have two names
        for column in self.columns.values():
            if id(column) not in taken:
                taken[id(column)] = _take(column, rows)
        columns = {name: taken[id(column)] for name, column in self.columns.items()}
        return Batch(columns, len(rows), self.epoch, self.index)

    def at(self, epoch: int, index: int) -> "Batch":
        """Return the same rows as batch `index` of `epoch`."""
        return Batch(self.columns, self.size, epoch, index)

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch with its tensors on `device`."""
        if device.type == "cpu":
            return self
        columns = {
            name: column if isinstance(column, np.ndarray) else _move(column, device)
            for name, column in self.columns.items()
        }
        return Batch(columns, self.size, self.epoch, self.index)


def _take(column: Column, rows: torch.Tensor) -> Column:
    if isinstance(column, Jagged):
        return column.take(rows)
    return column[rows] if isinstance(column, torch.Tensor) else column[rows.numpy()]


def _move(column: torch.Tensor | Jagged, device: torch.device) -> torch.Tensor | Jagged:
    return column.to(device) if isinstance(column, Jagged) else column.to(device, non_blocking=True)


def concatenate(batches: list[Batch]) -> Batch:
    """Return the rows of several batches with the same columns, one after the other."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    columns: dict[str, Column] = {}
    for name in first.columns:
        columns[name] = _concatenated([batch.columns[name] for batch in batches])
    return Batch(columns, sum(batch.size for batch in batches), first.epoch, first.index)


def _concatenated(parts: list[Any]) -> Column:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    # A list column is jagged only where its lists have different lengths.
    if any(isinstance(part, Jagged) for part in parts) or len({p.shape[1:] for p in parts}) > 1:
        return jagged.concatenate(parts)
    return torch.cat(parts)
