"""Detection of a model's integer inputs that are numbers, by trial."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from flambeau.data.batch import Batch, Column
from flambeau.data.binding import Binder
from flambeau.data.jagged import Jagged
from flambeau.inference.arguments import FAULTS

#: With more inputs than this, only single ones and all of them together are tried.
MOST_INPUTS = 8

Run = Callable[[Batch], Any]
FirstRows = Callable[[Binder], Batch | None]


def suited(run: Run, binder: Binder, first: FirstRows) -> Binder:
    """Return the binder, with integers as numbers where the model accepts nothing else.

    `run` applies the model to a batch, `first` reads a few rows with a binder. If no change helps,
    the binder is unchanged: the model itself raises the error.
    """
    batch = first(binder)
    if batch is None or not _integers(binder, batch):
        return binder
    try:
        run(batch)
    except FAULTS:
        numbers = find_numbers(run, binder, batch)
        return binder if numbers is None else binder.with_numbers(numbers)
    return binder


def find_numbers(run: Run, binder: Binder, batch: Batch) -> tuple[str, ...] | None:
    """Return the fewest integer inputs that must be floating-point for `run` to succeed.

    Return None if no choice helps.
    """
    for chosen in _choices(_integers(binder, batch)):
        changed = {name: _numbers(batch[name], binder, name) for name in chosen}
        try:
            run(replace(batch, columns={**batch.columns, **changed}))
        except FAULTS:
            continue  # the purpose is to find out whether it fails
        return chosen
    return None


def _integers(binder: Binder, batch: Batch) -> list[str]:
    return [name for name in dict.fromkeys(binder.inputs) if _are_integers(batch[name])]


def _are_integers(column: Column) -> bool:
    if isinstance(column, Jagged):
        plain = column.values is None and column.fields is None
        return plain and bool((column.lengths <= 1).all())
    return isinstance(column, Tensor) and not column.is_floating_point()


def _numbers(column: Column, binder: Binder, name: str) -> Tensor:
    """Return the column in the type of the weights; missing values are NaN."""
    if isinstance(column, Tensor):
        return column.to(binder.dtype)
    assert isinstance(column, Jagged)
    out = torch.full((len(column) * column.width,), torch.nan, dtype=binder.dtype)
    out[column.lengths == 1] = column.ids.to(binder.dtype)
    return out.view(len(column), column.width) if name in binder.stacks else out


def _choices(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield combinations of the names, small ones before large ones."""
    few = len(names) <= MOST_INPUTS
    for size in range(1, len(names) + 1) if few else (1, len(names)):
        yield from itertools.combinations(names, size)
