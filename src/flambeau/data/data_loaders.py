"""Handling of a torch DataLoader given as data: its rows, and the settings taken from it."""

import sys
from collections.abc import Mapping
from typing import Any

from flambeau.config import Loading
from flambeau.errors import ConfigError


def is_data_loader(data: Any) -> bool:
    """Return whether it is a torch DataLoader, without loading torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.utils.data.DataLoader)


def refuse_data_loader(data: Any, name: str) -> None:
    """Raise `ConfigError` for a DataLoader that a function created on a worker.

    Its settings cannot be used any more at that point.
    """
    if is_data_loader(data):
        raise ConfigError(
            f"{name} gave a DataLoader; give the DataLoader itself (train=loader), or let the "
            "function return its dataset, or take a shard: f(shard) -> DataLoader"
        )


def rows_of(loader: Any, name: str) -> Any:
    """Return the dataset of a DataLoader, with its `collate_fn`; `ConfigError` if rows are lost."""
    from torch.utils.data import default_collate

    from flambeau.data.sources.torch_dataset import CollatedDataset

    trouble = _trouble(loader, name)
    if trouble is not None:
        raise ConfigError(f"{name}= is a DataLoader {trouble}")
    if loader.collate_fn is default_collate:
        return loader.dataset
    return CollatedDataset(loader.dataset, loader.collate_fn)


def taken_over(
    loader: Any, batch_size: int | None, loading: Loading | Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return `batch_size` and `loading` of `fit`: those given, or else those of the DataLoader."""
    from torch.utils.data import RandomSampler

    size = loader.batch_size if batch_size is None else batch_size
    given = loading if loading is not None else {}
    if isinstance(given, Loading):
        given = {name: getattr(given, name) for name in given.model_fields_set}
    own = {
        "shuffle": isinstance(loader.sampler, RandomSampler),
        "drop_last": bool(loader.drop_last),
        **({"workers": loader.num_workers} if loader.num_workers else {}),
    }
    return {"batch_size": size, "loading": {**own, **given}}


def _trouble(loader: Any, name: str) -> str | None:
    """Return why a DataLoader's rows cannot be distributed and what to use instead, or None."""
    from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

    own_way = "a function f(shard) that makes a DataLoader for each worker"
    if isinstance(loader.dataset, IterableDataset):
        return (
            f"of an IterableDataset; give its dataset ({name}=loader.dataset) with batch_size=, or "
            f"{own_way}"
        )
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        return (
            "that makes its own batches (batch_size=None or a batch_sampler); give its "
            f"dataset ({name}=loader.dataset) with batch_size=, or {own_way}"
        )
    sampler = loader.sampler
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)
    )
    if not plain:
        return (
            f"with a {type(sampler).__name__} that chooses its rows; rows are dealt out to workers "
            "by number: leave the sampler out (shuffle=True or not), give some rows as "
            f"{name}=torch.utils.data.Subset(dataset, rows), rows that count more with weight=, or "
            f"{own_way}"
        )
    if loader.worker_init_fn is not None:
        return (
            "with a worker_init_fn, which would not be called; leave it out (random numbers are "
            f"seeded by seed=), or give {own_way}"
        )
    return None
