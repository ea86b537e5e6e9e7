"""A DataLoader as data: what is taken over, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from flambeau.config import DatasetData, Loading
from flambeau.data.data_loaders import is_data_loader, refuse_data_loader, rows_of, taken_over
from flambeau.data.sources.torch_dataset import CollatedDataset, MapDatasetSource
from flambeau.driver.job_packager import JobPackager
from flambeau.errors import ConfigError, DataError

PAIRS = TensorDataset(torch.arange(6.0), torch.arange(6) % 2)


class Lists(Dataset[list[int]]):
    """Items of different lengths, of which only a function can make a batch."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> list[int]:
        return list(range(row + 1))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


def pad(items: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, items))
    rows = [item + [0] * (longest - len(item)) for item in items]
    return torch.tensor(rows), torch.tensor([len(item) for item in items])


def test_the_rows_are_those_of_the_dataset() -> None:
    assert rows_of(DataLoader(PAIRS, batch_size=2, shuffle=True), "train") is PAIRS
    assert is_data_loader(DataLoader(PAIRS))
    assert not is_data_loader(PAIRS)


def test_batches_are_made_by_the_loaders_own_function() -> None:
    source = MapDatasetSource(rows_of(DataLoader(Lists(), collate_fn=pad), "train"))
    assert (len(source), source.columns) == (4, ("x", "y"))
    assert (source.positional, source.labels) == (("x",), ("y",))
    batch = source.take(np.array([2, 0]))
    assert batch["x"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert batch["y"].tolist() == [3, 1]


def test_a_function_that_changes_the_number_of_rows_is_refused() -> None:
    source = MapDatasetSource(CollatedDataset(Lists(), lambda items: torch.zeros(1)))
    with pytest.raises(DataError, match="a batch of 1 rows of 3 items"):
        source.take(np.arange(3))


def test_settings_are_those_of_the_loader() -> None:
    loader = DataLoader(PAIRS, batch_size=2, shuffle=True, drop_last=True, num_workers=1)
    own = {"shuffle": True, "drop_last": True, "workers": 1}
    assert taken_over(loader, None, None) == {"batch_size": 2, "loading": own}
    plain = {"shuffle": False, "drop_last": False}
    assert taken_over(DataLoader(PAIRS), None, None) == {"batch_size": 1, "loading": plain}


@pytest.mark.parametrize("loading", [Loading(shuffle=True), {"shuffle": True}], ids=repr)
def test_settings_that_are_given_come_first(loading: Any) -> None:
    found = taken_over(DataLoader(PAIRS, batch_size=2, drop_last=True), 5, loading)
    assert found == {"batch_size": 5, "loading": {"shuffle": True, "drop_last": True}}


REFUSED = {
    "stream": (DataLoader(Stream()), r"IterableDataset; give its dataset \(valid=loader"),
    "own batches": (DataLoader(PAIRS, batch_size=None), "with batch_size="),
    "batch sampler": (
        DataLoader(PAIRS, batch_sampler=BatchSampler(SequentialSampler(PAIRS), 2, False)),
        "makes its own batches",
    ),
    "distributed": (
        DataLoader(PAIRS, sampler=DistributedSampler(PAIRS, num_replicas=2, rank=0)),
        "DistributedSampler that chooses its rows.*leave the sampler out",
    ),
    "replacement": (
        DataLoader(PAIRS, sampler=RandomSampler(PAIRS, replacement=True)),
        "RandomSampler that chooses",
    ),
    "some rows": (
        DataLoader(PAIRS, sampler=RandomSampler(PAIRS, num_samples=2)),
        r"valid=torch\.utils\.data\.Subset",
    ),
    "initialised": (DataLoader(PAIRS, worker_init_fn=print), "would not be called"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_loader_that_chooses_rows_itself_is_refused(case: str) -> None:
    loader, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        rows_of(loader, "valid")


def test_a_loader_that_a_function_makes_on_a_worker_is_refused() -> None:
    refuse_data_loader(PAIRS, "shop:data")
    with pytest.raises(ConfigError, match="shop:data gave a DataLoader"):
        refuse_data_loader(DataLoader(PAIRS), "shop:data")


def test_a_loader_travels_as_its_dataset(tmp_path: Path) -> None:
    with JobPackager(tmp_path) as description:
        found = description.data(DataLoader(PAIRS, batch_size=2), "train")
    assert isinstance(found, DatasetData)
