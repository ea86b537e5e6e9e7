import gzip
import pickle
import struct

import numpy as np
import pytest
import torch

from flambeau.data.sources.idx import IdxSource, read_idx
from flambeau.errors import DataError

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def idx_bytes(array):
    header = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.name], array.ndim, *array.shape
    )
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


IMAGES = np.arange(5 * 3 * 2, dtype=np.uint8).reshape(5, 3, 2)
LABELS = np.array([3, 1, 4, 1, 5], np.uint8)


def write_pair(directory, images=IMAGES, labels=LABELS, prefix="train", packed=False):
    suffix = ".gz" if packed else ""
    pack = gzip.compress if packed else bytes
    path = directory / f"{prefix}-images-idx3-ubyte{suffix}"
    path.write_bytes(pack(idx_bytes(images)))
    (directory / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx_bytes(labels)))
    return str(path)


@pytest.mark.parametrize("packed", [False, True])
def test_images_and_labels_of_the_asked_rows(tmp_path, packed):
    source = IdxSource(write_pair(tmp_path, packed=packed))
    batch = source.take(np.array([4, 0]))
    assert len(source) == 5
    assert batch["image"].dtype == torch.uint8
    np.testing.assert_array_equal(batch["image"].numpy(), IMAGES[[4, 0]][:, None])
    assert batch["label"].dtype == torch.int64
    assert batch["label"].tolist() == [5, 3]


def test_only_the_named_columns_are_read(tmp_path):
    batch = IdxSource(write_pair(tmp_path)).take(np.array([0]), ["label"])
    assert list(batch) == ["label"]


@pytest.mark.parametrize("dtype", CODES)
def test_any_type_and_rank_is_read(tmp_path, dtype):
    array = np.arange(16).reshape(2, 2, 2, 2).astype(dtype)
    (tmp_path / "array").write_bytes(idx_bytes(array))
    np.testing.assert_array_equal(read_idx(str(tmp_path / "array")), array)


def test_wide_images_come_in_native_byte_order(tmp_path):
    images = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    source = IdxSource(write_pair(tmp_path, images, LABELS[:2]))
    np.testing.assert_array_equal(source.take(np.array([1]))["image"][0, 0].numpy(), images[1])


def test_labels_file_can_be_named(tmp_path):
    (tmp_path / "pictures").write_bytes(idx_bytes(IMAGES))
    (tmp_path / "answers").write_bytes(idx_bytes(LABELS))
    source = IdxSource(str(tmp_path / "pictures"), labels=str(tmp_path / "answers"))
    assert source.take(np.array([2]))["label"].item() == 4


def test_labels_file_that_does_not_follow_from_the_name_is_asked_for(tmp_path):
    (tmp_path / "pictures").write_bytes(idx_bytes(IMAGES))
    with pytest.raises(DataError, match="give labels="):
        IdxSource(str(tmp_path / "pictures"))


def test_packed_labels_beside_plain_images(tmp_path):
    path = write_pair(tmp_path)
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.with_name(labels.name + ".gz").write_bytes(gzip.compress(labels.read_bytes()))
    labels.unlink()
    assert len(IdxSource(path)) == 5


def test_directory_with_one_pair(tmp_path):
    write_pair(tmp_path)
    write_pair(tmp_path, packed=True)
    assert len(IdxSource(str(tmp_path))) == 5


def test_split_chooses_the_pair_of_a_directory(tmp_path):
    write_pair(tmp_path)
    write_pair(tmp_path, IMAGES[:2], LABELS[:2], prefix="t10k")
    assert len(IdxSource(str(tmp_path), split="test")) == 2
    assert len(IdxSource(str(tmp_path), split="train")) == 5
    with pytest.raises(DataError, match="give split="):
        IdxSource(str(tmp_path))


def test_unknown_split_and_directory_without_images(tmp_path):
    with pytest.raises(DataError, match="use 'train' or 'test'"):
        IdxSource(str(tmp_path), split="valid")
    with pytest.raises(DataError, match="holds no idx images"):
        IdxSource(str(tmp_path))


def test_pickled_source_reads_the_same(tmp_path):
    source = pickle.loads(pickle.dumps(IdxSource(write_pair(tmp_path, packed=True))))
    assert source.take(np.array([4]))["label"].item() == 5


def test_different_numbers_of_images_and_labels(tmp_path):
    with pytest.raises(DataError, match=r"has 5 images but .*labels.* has 4 labels"):
        IdxSource(write_pair(tmp_path, labels=LABELS[:4]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n", "is not an idx file: it starts with 89 50 4e 47"),
        (b"\0\0", "is not an idx file"),
        (idx_bytes(IMAGES)[:10], "ends inside its header"),
        (idx_bytes(IMAGES)[:-1], "is truncated: 45 bytes, its header says 46"),
        (idx_bytes(IMAGES) + b"x", "has bytes after its end"),
        (idx_bytes(IMAGES[:0]), "holds no data"),
        (gzip.compress(idx_bytes(IMAGES))[:-12], "damaged gzip"),
        (b"\x1f\x8b" + b"garbage", "damaged gzip"),
        (gzip.compress(b""), "empty once decompressed"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_damaged_files_are_named(tmp_path, content, message):
    path = tmp_path / "some-images"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"some-images.*{message}"):
        read_idx(str(path))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing-images.*No such file"):
        IdxSource(str(tmp_path / "nothing-images"))
