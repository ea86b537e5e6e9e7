import errno
import io
import os
import pickle
import tempfile

import numpy as np
import pytest
import torch

from flambeau.config import ArrayData, ArrayRef
from flambeau.data.sources import shared_arrays
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.shared_arrays import array_columns, share_arrays
from flambeau.errors import DataError


@pytest.fixture
def spooled(tmp_path):
    descriptors = []

    def make(columns, **names):
        refs, opened = share_arrays(columns, tmp_path)
        descriptors.extend(opened)
        return ArraySource(ArrayData(columns=refs, **names))

    yield make
    for descriptor in descriptors:
        os.close(descriptor)


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_taken_rows_have_the_values_and_type_of_the_array(spooled, dtype):
    x = np.arange(24).reshape(6, 2, 2).astype(dtype)
    source = spooled({"x": x})
    taken = source.take(np.array([4, 0, 4]))["x"]
    assert taken.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(taken.numpy(), x[[4, 0, 4]])


def test_bfloat16_tensors_survive(spooled):
    x = torch.arange(6, dtype=torch.bfloat16)
    torch.testing.assert_close(spooled({"x": x}).take(np.array([5, 1]))["x"], x[[5, 1]])


@pytest.mark.parametrize(("dtype", "stored"), [("uint16", torch.int32), ("uint32", torch.int64)])
def test_unsigned_numbers_are_stored_wider(spooled, dtype, stored):
    x = np.array([0, np.iinfo(dtype).max], dtype)
    taken = spooled({"x": x}).take(np.array([1]))["x"]
    assert taken.dtype == stored
    assert taken.item() == np.iinfo(dtype).max


def test_other_byte_orders_and_strides_are_read_by_value(spooled):
    x = np.arange(12, dtype=">f4").reshape(3, 4)
    source = spooled({"swapped": x, "strided": x.T[:3]})
    batch = source.take(np.array([2, 0]))
    np.testing.assert_array_equal(batch["swapped"].numpy(), x[[2, 0]])
    np.testing.assert_array_equal(batch["strided"].numpy(), x.T[[2, 0]])


def test_consecutive_rows_may_be_changed_in_place(spooled):
    source = spooled({"x": np.zeros(4, np.float32)})
    source.take(np.arange(1, 3))["x"].add_(1)
    assert source.take(np.arange(4))["x"].sum() == 0


def test_only_the_named_columns_are_taken(spooled):
    source = spooled({"a": np.arange(3), "b": np.arange(3)})
    assert list(source.take(np.array([0]), ["b"])) == ["b"]


def test_no_rows_give_an_empty_batch(spooled):
    batch = spooled({"x": np.ones((3, 2))}).take(np.array([], np.int64))
    assert batch.size == 0
    assert batch["x"].shape == (0, 2)


def test_columns_longer_than_a_chunk_are_written_whole(spooled, monkeypatch):
    monkeypatch.setattr(shared_arrays, "_CHUNK_BYTES", 64)
    x = np.arange(1000, dtype=np.float64).reshape(100, 10)
    np.testing.assert_array_equal(spooled({"x": x}).take(np.arange(100))["x"].numpy(), x)


def test_nothing_is_left_in_the_directory(spooled, tmp_path):
    spooled({"x": np.arange(3)})
    assert list(tmp_path.iterdir()) == []


def test_descriptors_are_inheritable(tmp_path):
    _, descriptors = share_arrays({"x": np.arange(3)}, tmp_path)
    assert [os.get_inheritable(descriptor) for descriptor in descriptors] == [True]
    os.close(descriptors[0])


def test_pickled_source_maps_the_same_data(spooled):
    source = spooled({"x": np.arange(3)}, inputs=("x",))
    again = pickle.loads(pickle.dumps(source))
    assert again.positional == ("x",)
    assert again.take(np.array([2]))["x"].item() == 2


def test_memmap_is_referred_to_by_path(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(2000, dtype=np.float32).reshape(1000, 2))
    refs, descriptors = share_arrays({"x": np.load(path, mmap_mode="r")[600:]}, tmp_path)
    assert descriptors == []
    assert refs["x"].path == str(path)
    source = ArraySource(ArrayData(columns=refs))
    assert len(source) == 400
    assert source.take(np.array([1, 0]))["x"].tolist() == [[1202, 1203], [1200, 1201]]


@pytest.mark.parametrize("change", [lambda x: x[::2], lambda x: x.astype(np.uint16)])
def test_memmap_that_differs_from_its_file_is_copied(tmp_path, change):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(10))
    refs, descriptors = share_arrays({"x": change(np.load(path, mmap_mode="r"))}, tmp_path)
    assert refs["x"].path is None
    os.close(descriptors[0])


def test_memmap_with_private_changes_is_copied(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(10))
    refs, descriptors = share_arrays({"x": np.load(path, mmap_mode="c")}, tmp_path)
    assert refs["x"].path is None
    os.close(descriptors[0])


def test_file_shorter_than_its_reference_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"12345678")
    ref = ArrayRef(path=str(tmp_path / "x"), dtype="float64", shape=(2,))
    with pytest.raises(DataError, match=r"needs 16 bytes.*only 8"):
        ArraySource(ArrayData(columns={"x": ref}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.ones(3), "y": np.ones(2)}, "'x' has 3, 'y' has 2"),
        ({"x": np.ones((0, 4))}, "no rows"),
        ({}, "no rows"),
        ({"x": np.array(1.0)}, "'x' is a single number"),
        ({"x": np.array(["a", None])}, "'x' has type object"),
        ({"x": np.array(["a"])}, "'x' has type <U1"),
        ({"x": np.array([1, 2, np.nan, 4])}, "'x' holds NaN or infinity, first in row 2"),
        ({"x": torch.tensor([[1.0, 2], [3, -torch.inf]])}, "'x' holds NaN.* in row 1"),
    ],
)
def test_bad_arrays_are_refused_by_name(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        share_arrays(columns, tmp_path)


def test_nan_is_found_in_later_chunks_and_in_memmaps(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_arrays, "_CHUNK_BYTES", 64)
    x = np.zeros(1000)
    x[777] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match="row 777"):
        share_arrays({"x": np.load(tmp_path / "x.npy", mmap_mode="r")}, tmp_path)


def test_nan_but_not_infinity_is_let_through_where_values_may_be_missing(tmp_path):
    _, descriptors = share_arrays({"y": np.array([1, np.nan])}, tmp_path, frozenset({"y"}))
    os.close(descriptors[0])
    with pytest.raises(DataError, match="'y' holds infinity, first in row 1"):
        share_arrays({"y": np.array([np.nan, np.inf])}, tmp_path, frozenset({"y"}))


def test_descriptors_are_closed_when_a_later_column_is_bad(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(DataError):
        share_arrays({"x": np.ones(2), "y": np.array([1, np.nan])}, tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_full_disk_is_explained(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Full())
    with pytest.raises(DataError, match=r"no space left in .* column 'x'"):
        share_arrays({"x": np.ones(2)}, tmp_path)


A, B, C = np.ones(2), torch.ones(2), np.zeros(2)


@pytest.mark.parametrize(
    ("train", "names", "inputs", "labels"),
    [
        ((A, C), ["x", "y"], ("x",), ("y",)),
        ([A, C], ["x", "y"], ("x",), ("y",)),
        (((A, B), C), ["x0", "x1", "y"], ("x0", "x1"), ("y",)),
        ((A, (B, C)), ["x", "y0", "y1"], ("x",), ("y0", "y1")),
        ((A,), ["x"], ("x",), ()),
        (A, ["x"], ("x",), ()),
        (B, ["x"], ("x",), ()),
        ({"age": A, "clicked": B}, ["age", "clicked"], (), ()),
    ],
)
def test_arrays_get_column_names_by_position(train, names, inputs, labels):
    columns, found_inputs, found_labels = array_columns(train)
    assert (list(columns), found_inputs, found_labels) == (names, inputs, labels)


def test_something_that_is_no_array_is_refused():
    with pytest.raises(DataError, match="column 'y' is a list"):
        array_columns((A, [1, 2]))


@pytest.mark.parametrize("rows", [[0, 1], [1, 0]], ids=["in order", "mixed"])
def test_unsigned_numbers_beyond_int64_are_as_they_are(tmp_path, rows):
    values = np.array([2**63 + 1, 7], np.uint64)
    refs, descriptors = share_arrays({"x": values}, tmp_path)
    taken = ArraySource(ArrayData(columns=refs)).take(np.array(rows))["x"]
    assert taken.tolist() == values[rows].tolist()
    for descriptor in descriptors:
        os.close(descriptor)
