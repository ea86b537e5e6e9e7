"""The user's own torch Dataset, DataLoader or iterator as a source."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch.utils.data import default_collate

from flambeau.data.batch import Batch, Column
from flambeau.data.jagged import Jagged
from flambeau.data.source import IndexedSource, IterableSource, Share
from flambeau.data.sources.text.naming import Named, name_columns
from flambeau.errors import DataError


@final
@dataclass(frozen=True)
class CollatedDataset:
    """A map-style Dataset whose batches are made by the user's own function."""

    dataset: Any
    collate: Callable[[list[Any]], Any]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Any:
        return self.dataset[row]


@final
class MapDatasetSource(IndexedSource):
    """Items of a map-style Dataset: `(x, y)`, `(x1, x2, y)`, a single `x`, or a dict.

    Those of a `CollatedDataset` may be anything from which its function makes such a batch.
    """

    def __init__(self, dataset: Any) -> None:
        self._collate = dataset.collate if isinstance(dataset, CollatedDataset) else None
        self._dataset = dataset.dataset if isinstance(dataset, CollatedDataset) else dataset
        if len(self._dataset) == 0:
            raise DataError(f"the dataset {type(self._dataset).__name__} is empty")
        first = name_columns(self._collate([self._dataset[0]]) if self._collate else dataset[0])
        self._names = tuple(first.columns)
        self.positional, self.labels = first.inputs, first.labels

    @property
    def columns(self) -> tuple[str, ...]:
        return self._names

    def __len__(self) -> int:
        return len(self._dataset)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        items = self._items(rows.tolist())
        if self._collate is None:
            batch = _collate([name_columns(item) for item in items])
        else:
            batch = _ready_batch(name_columns(self._collate(items)))
            if batch.size != len(items):
                raise DataError(
                    f"collate_fn made a batch of {batch.size} rows of {len(items)} items; give "
                    "a function f(shard) that makes a DataLoader, whose batches may have any size"
                )
        if columns is None:
            return batch
        return Batch({name: batch[name] for name in columns}, batch.size)

    def _items(self, rows: list[int]) -> list[Any]:
        if hasattr(self._dataset, "__getitems__"):
            return list(self._dataset.__getitems__(rows))
        return [self._dataset[row] for row in rows]


@final
class IterableDatasetSource(IterableSource):
    """Items of an iterable Dataset; worker w of n gets the items w, w + n, w + 2n, ...

    `positional` and `labels` are known after the first batch.
    """

    def __init__(self, dataset: Iterable[Any]) -> None:
        self._dataset = dataset

    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(share.epoch)
        mine = itertools.islice(self._dataset, share.index, None, share.count)
        for index in itertools.count():
            items = [name_columns(item) for item in itertools.islice(mine, batch_size)]
            if not items:
                return
            self.positional, self.labels = items[0].inputs, items[0].labels
            yield _collate(items).at(share.epoch, index)


@final
class LoaderSource(IterableSource):
    """Ready batches from `function(share)`, of any size: tensors, a dict, or a `Batch`.

    `positional` and `labels` are known after the first batch.
    """

    def __init__(self, function: Callable[[Share], Iterable[Any]]) -> None:
        self._function = function

    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        for index, item in enumerate(self._function(share)):
            if isinstance(item, Batch):
                yield item.at(share.epoch, index)
                continue
            named = name_columns(item)
            self.positional, self.labels = named.inputs, named.labels
            yield _ready_batch(named).at(share.epoch, index)


def _ready_batch(named: Named) -> Batch:
    return _batch({name: _ready(name, column) for name, column in named.columns.items()})


def _collate(items: list[Named]) -> Batch:
    names = list(items[0].columns)
    for item in items:
        if list(item.columns) != names:
            raise DataError(f"items of the dataset differ: {names} and {list(item.columns)}")
    return _batch({name: _column(name, [item.columns[name] for item in items]) for name in names})


def _column(name: str, values: list[Any]) -> Column:
    if isinstance(values[0], str | bytes | None):
        return np.array(values, dtype=object)
    if isinstance(values[0], list | tuple):
        values = [torch.as_tensor(value) for value in values]
    try:
        column = default_collate(values)
    except (TypeError, RuntimeError) as error:
        raise DataError(f"values of {name!r} do not make a batch: {error}") from error
    return _ready(name, column)


def _ready(name: str, column: Any) -> Column:
    if isinstance(column, torch.Tensor | Jagged):
        return column
    array = np.asarray(column)
    return array if array.dtype.kind in "OUS" else torch.as_tensor(array)


def _batch(columns: dict[str, Column]) -> Batch:
    sizes = {name: _rows(column) for name, column in columns.items()}
    if len(set(sizes.values())) != 1:
        raise DataError(f"columns of one batch have different numbers of rows: {sizes}")
    return Batch(columns, next(iter(sizes.values())))


def _rows(column: Column) -> int:
    return len(column) if isinstance(column, Jagged) or column.ndim else 0
