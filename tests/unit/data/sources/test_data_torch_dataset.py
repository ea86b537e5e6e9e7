import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from flambeau.data.batch import Batch
from flambeau.data.source import Share
from flambeau.data.sources.torch_dataset import (
    IterableDatasetSource,
    LoaderSource,
    MapDatasetSource,
)
from flambeau.errors import DataError


def share(index=0, count=1, epoch=0):
    return Share(index, count, epoch, seed=0)


def test_items_with_two_parts_are_input_and_label():
    source = MapDatasetSource([(torch.ones(2) * n, n) for n in range(4)])
    batch = source.take(np.array([3, 1]))
    assert (source.columns, source.positional, source.labels) == (("x", "y"), ("x",), ("y",))
    assert batch["x"].tolist() == [[3, 3], [1, 1]]
    assert batch["y"].tolist() == [3, 1]
    assert batch["y"].dtype == torch.int64


def test_items_with_more_parts_have_several_inputs():
    source = MapDatasetSource([(np.zeros(2), np.ones(3), 1.0)])
    assert (source.positional, source.labels) == (("x0", "x1"), ("y",))


def test_single_items_have_no_label():
    source = MapDatasetSource([torch.ones(2)])
    assert (source.columns, source.labels) == (("x",), ())


def test_lists_of_numbers_are_one_input():
    source = MapDatasetSource([([1.0, 2.0], 0), ([3.0, 4.0], 1)])
    assert source.take(np.arange(2))["x"].tolist() == [[1, 2], [3, 4]]


def test_dict_items_keep_their_names():
    source = MapDatasetSource([{"age": 3, "name": "ann", "ok": True}])
    assert (source.columns, source.positional) == (("age", "name", "ok"), ())
    batch = source.take(np.array([0]), ["name", "ok"])
    assert batch["name"].tolist() == ["ann"]
    assert batch["ok"].dtype == torch.bool
    assert list(batch) == ["name", "ok"]


class Bulk:
    def __len__(self):
        return 9

    def __getitem__(self, row):
        assert row == 0, "only the first item is asked for alone"
        return self.__getitems__([row])[0]

    def __getitems__(self, rows):
        return [(10 * row, row) for row in rows]


def test_datasets_that_fetch_several_items_at_once_are_asked_so():
    assert MapDatasetSource(Bulk()).take(np.array([5, 3]))["x"].tolist() == [50, 30]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(torch.ones(2), 0), (torch.ones(3), 0)], "values of 'x' do not make a batch"),
        ([(object(), 0), (object(), 0)], "values of 'x' do not make a batch"),
        ([{"a": 1}, {"b": 1}], "items of the dataset differ"),
    ],
)
def test_items_that_do_not_fit_are_explained(items, message):
    with pytest.raises(DataError, match=message):
        MapDatasetSource(items).take(np.arange(2))


def test_empty_dataset_is_refused():
    with pytest.raises(DataError, match="empty"):
        MapDatasetSource([])


class Numbers(IterableDataset):
    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter((torch.tensor([float(n)]), n) for n in range(7))


def test_items_are_dealt_to_workers_in_turn():
    source = IterableDatasetSource(Numbers())
    parts = [list(source.batches(share(index, 2, 3), 2)) for index in (0, 1)]
    assert [[batch["y"].tolist() for batch in part] for part in parts] == [
        [[0, 2], [4, 6]],
        [[1, 3], [5]],
    ]
    assert [(batch.epoch, batch.index) for batch in parts[0]] == [(3, 0), (3, 1)]
    assert (source.positional, source.labels) == (("x",), ("y",))


def test_dataset_is_told_the_epoch():
    data = Numbers()
    next(IterableDatasetSource(data).batches(share(epoch=5), 1))
    assert data.epoch == 5


def test_loader_batches_keep_their_size():
    data = TensorDataset(torch.arange(5.0), torch.arange(5))
    source = LoaderSource(lambda share: DataLoader(data, batch_size=share.count))
    batches = list(source.batches(share(count=3, epoch=1), 100))
    assert [batch.size for batch in batches] == [3, 2]
    assert (batches[1].epoch, batches[1].index) == (1, 1)
    assert (source.positional, source.labels) == (("x",), ("y",))


def test_loader_may_give_dicts_and_batches():
    ready = Batch({"a": torch.ones(2)}, 2)
    source = LoaderSource(
        lambda share: [{"a": np.ones(2), "key": np.array(["u", "v"], object)}, ready]
    )
    first, second = source.batches(share(), 1)
    assert isinstance(first["a"], torch.Tensor)
    assert first["key"].tolist() == ["u", "v"]
    assert second["a"] is ready["a"]


def test_loader_columns_of_different_length_are_refused():
    source = LoaderSource(lambda share: [(torch.ones(2), torch.ones(3))])
    with pytest.raises(DataError, match="different numbers of rows"):
        next(source.batches(share(), 1))
