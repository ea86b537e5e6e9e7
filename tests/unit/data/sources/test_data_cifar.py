import pickle

import numpy as np
import pytest
import torch

from flambeau.data.sources.cifar import CifarSource
from flambeau.errors import DataError


def records(labels, seed=0):
    """CIFAR records whose label bytes are the tuples in `labels`."""
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), np.uint8)
    return np.concatenate([np.array(labels, np.uint8), pixels], axis=1)


@pytest.fixture
def directory(tmp_path):
    for number in (1, 2):
        records([(number,), (number + 3,)], number).tofile(tmp_path / f"data_batch_{number}.bin")
    records([(9,)]).tofile(tmp_path / "test_batch.bin")
    return str(tmp_path)


def test_rows_come_from_all_files_in_the_asked_order(directory):
    source = CifarSource(directory)
    batch = source.take(np.array([3, 0, 2]))
    assert len(source) == 4
    assert batch["label"].dtype == torch.int64
    assert batch["label"].tolist() == [5, 1, 2]
    assert batch["image"].shape == (3, 3, 32, 32)
    expected = records([(2,), (5,)], 2)[1, 1:].reshape(3, 32, 32)
    np.testing.assert_array_equal(batch["image"][0].numpy(), expected)


def test_split_chooses_the_files_of_a_directory(directory):
    assert CifarSource(directory, split="test").take(np.array([0]))["label"].item() == 9
    with pytest.raises(DataError, match="use 'train' or 'test'"):
        CifarSource(directory, split="valid")


def test_glob_and_list_of_files(directory):
    assert len(CifarSource(f"{directory}/data_batch_*.bin")) == 4
    assert len(CifarSource([f"{directory}/test_batch.bin"])) == 1


def test_hundred_classes_have_the_fine_label(tmp_path):
    records([(19, 99), (0, 5)]).tofile(tmp_path / "train.bin")
    source = CifarSource(str(tmp_path), classes=100)
    assert source.take(np.arange(2))["label"].tolist() == [99, 5]


def test_pickled_source_reads_the_same(directory):
    source = pickle.loads(pickle.dumps(CifarSource(directory, split="test")))
    assert source.take(np.array([0]), ["label"])["label"].item() == 9


def test_truncated_file_is_named(tmp_path):
    (tmp_path / "a.bin").write_bytes(records([(1,)]).tobytes()[:-1])
    with pytest.raises(DataError, match=r"a\.bin is truncated.*3072 bytes is not a multiple"):
        CifarSource(str(tmp_path / "a.bin"))


def test_label_out_of_range_names_file_and_record(tmp_path):
    records([(1,), (10,)]).tofile(tmp_path / "a.bin")
    with pytest.raises(DataError, match=r"a\.bin record 1 has label 10.* 0 to 9"):
        CifarSource(str(tmp_path / "a.bin"))


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(DataError, match="data_batch"):
        CifarSource(str(tmp_path))
    (tmp_path / "a.bin").touch()
    with pytest.raises(DataError, match=r"a\.bin is empty"):
        CifarSource(str(tmp_path / "a.bin"))
