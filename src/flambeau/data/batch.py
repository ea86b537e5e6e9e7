"""A batch of rows as tensors, by column name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch

Column = torch.Tensor | np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Batch(Mapping[str, Column]):
    """Rows as columns: `batch["age"]` is a tensor whose first dimension is the row.

    Columns that are not numbers (strings, kept for `keys=`) are numpy object arrays. `epoch` and
    `index` say where in the training the batch belongs; random augmentation is keyed by them.
    """

    columns: Mapping[str, Column]
    size: int
    epoch: int = field(default=0, compare=False)
    index: int = field(default=0, compare=False)

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def slice(self, start: int, stop: int) -> "Batch":
        """Rows `start` to `stop` as views: nothing is copied."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Batch(columns, min(stop, self.size) - start, self.epoch, self.index)

    def take(self, rows: torch.Tensor) -> "Batch":
        """The given rows, in that order, copied."""
        columns = {
            name: column[rows] if isinstance(column, torch.Tensor) else column[rows.numpy()]
            for name, column in self.columns.items()
        }
        return Batch(columns, len(rows), self.epoch, self.index)

    def at(self, epoch: int, index: int) -> "Batch":
        """The same rows, as batch `index` of `epoch`."""
        return Batch(self.columns, self.size, epoch, index)

    def to(self, device: torch.device) -> "Batch":
        """The same batch with its tensors on `device`."""
        if device.type == "cpu":
            return self
        columns = {
            name: column.to(device, non_blocking=True)
            if isinstance(column, torch.Tensor)
            else column
            for name, column in self.columns.items()
        }
        return Batch(columns, self.size, self.epoch, self.index)


def concatenate(batches: list[Batch]) -> Batch:
    """The rows of several batches with the same columns, one after the other."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    columns: dict[str, Column] = {}
    for name, column in first.columns.items():
        parts = [batch.columns[name] for batch in batches]
        if isinstance(column, torch.Tensor):
            columns[name] = torch.cat(parts)  # type: ignore[arg-type]
        else:
            columns[name] = np.concatenate(parts)
    return Batch(columns, sum(batch.size for batch in batches), first.epoch, first.index)
