import contextlib
import pickle
import struct
import zlib

import numpy as np
import pytest
import torch

from flambeau.config import FileData
from flambeau.data.sources.formats import infer_format
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.svhn import SvhnSource
from flambeau.errors import DataError

scipy_io = pytest.importorskip("scipy.io")


def digits(rows, seed=0):
    """Pixels in MATLAB's order [32, 32, 3, rows], of which each is different."""
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3, rows), np.uint8)


def write(path, pixels, labels, **options):
    """Write as the published files are: compressed, the labels as a column of bytes."""
    arrays = {"X": pixels, "y": np.array(labels, np.uint8).reshape(-1, 1)}
    scipy_io.savemat(path, arrays, do_compression=options.pop("packed", True), **options)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train_32x32.mat", digits(4), [1, 9, 10, 3])
    write(tmp_path / "test_32x32.mat", digits(2, 1), [10, 2])
    return str(tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_images_are_upright_and_label_10_is_the_digit_0(tmp_path, packed):
    pixels = digits(4)
    source = SvhnSource(write(tmp_path / "a.mat", pixels, [1, 9, 10, 3], packed=packed))
    batch = source.take(np.array([2, 0]))
    assert batch["label"].dtype == torch.int64
    assert batch["label"].tolist() == [0, 1]
    assert batch["image"].dtype == torch.uint8
    expected = pixels[:, :, :, [2, 0]].transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(batch["image"].numpy(), expected)


def test_a_folder_is_recognised_and_split_chooses_its_file(folder):
    assert infer_format(folder) == "svhn"
    train = open_source(FileData(path=folder), None)
    test = open_source(FileData(path=folder, options={"split": "test"}), None)
    assert (len(train), len(test)) == (4, 2)
    with pytest.raises(DataError, match="use 'train', 'test' or 'extra'"):
        SvhnSource(folder, split="valid")
    with pytest.raises(DataError, match=r"extra_32x32\.mat"):
        SvhnSource(folder, split="extra")


def test_rows_of_several_files_are_numbered_through(folder):
    source = SvhnSource([f"{folder}/train_32x32.mat", f"{folder}/test_32x32.mat"])
    batch = source.take(np.array([5, 1, 4]))
    assert batch["label"].tolist() == [2, 9, 0]
    np.testing.assert_array_equal(
        batch["image"][0].numpy(), digits(2, 1)[:, :, :, 1].transpose(2, 0, 1)
    )


def test_pickled_source_reads_the_same(folder):
    source = pickle.loads(pickle.dumps(SvhnSource(folder, split="test")))
    assert source.take(np.arange(2), ["label"])["label"].tolist() == [0, 2]


def test_a_single_image_and_labels_stored_as_doubles(tmp_path):
    path = tmp_path / "a.mat"
    scipy_io.savemat(path, {"note": "text", "X": digits(1)[:, :, :, 0], "y": np.array([[10.0]])})
    batch = SvhnSource(str(path)).take(np.array([0]))
    np.testing.assert_array_equal(batch["image"][0].numpy(), digits(1)[..., 0].transpose(2, 0, 1))
    assert batch["label"].tolist() == [0]


def test_large_arrays_are_decompressed_in_pieces(tmp_path):
    pixels = digits(1200)  # 3.5 MiB, in random bytes that hardly compress
    pixels[..., 600:] = 0  # and in zeros that do
    source = SvhnSource(write(tmp_path / "a.mat", pixels, [1] * 1200))
    images = source.take(np.arange(1200))["image"].numpy()
    np.testing.assert_array_equal(images, pixels.transpose(3, 2, 0, 1))


def big_endian(pixels, labels):
    """The bytes of a file that a big-endian machine wrote, by the letter of the format."""

    def element(kind, data):
        return struct.pack(">II", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    def array(name, kind, numbers):
        shape = element(5, np.array(numbers.shape, ">i4").tobytes())
        small_name = struct.pack(">HH4s", len(name), 1, name)
        parts = element(6, struct.pack(">II", kind, 0)) + shape + small_name
        return element(14, parts + element(2 if kind == 9 else 3, numbers.tobytes(order="F")))

    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI"
    marks = np.array(labels, ">i2").reshape(-1, 1)
    return header + array(b"X", 9, pixels) + array(b"y", 10, marks)


def test_files_of_big_endian_machines_are_read(tmp_path):
    path = tmp_path / "a.mat"
    path.write_bytes(big_endian(digits(2), [10, 7]))
    batch = SvhnSource(str(path)).take(np.arange(2))
    assert batch["label"].tolist() == [0, 7]
    np.testing.assert_array_equal(batch["image"].numpy(), digits(2).transpose(3, 2, 0, 1))


def test_files_of_matlab_7_3_say_how_to_write_them_again(tmp_path):
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(DataError, match=r"train_32x32\.mat is of MATLAB 7\.3.*save\('-v7'\)"):
        SvhnSource(str(tmp_path))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.mat"
    path.write_bytes(b"not a MATLAB file" * 20)
    with pytest.raises(DataError, match=r"a\.mat is not a MATLAB file"):
        SvhnSource(str(path))
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.mat is empty"):
        SvhnSource(str(path))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_truncated_files_are_named(tmp_path, packed, share):
    path = tmp_path / "a.mat"
    write(path, digits(8), range(1, 9), packed=packed)
    content = path.read_bytes()
    path.write_bytes(content[: max(130, int(share * len(content)))])
    with pytest.raises(DataError, match=r"a\.mat is damaged or truncated"):
        SvhnSource(str(path))


def test_every_damaged_byte_of_a_compressed_array_is_noticed(tmp_path):
    path = tmp_path / "a.mat"
    write(path, digits(2), [1, 2])
    content = path.read_bytes()
    for at in range(136, len(content), 97):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        with pytest.raises(DataError, match=r"a\.mat"):
            SvhnSource(str(path))


def test_damaged_descriptions_of_arrays_lead_to_no_other_errors(tmp_path):
    path = tmp_path / "a.mat"
    write(path, digits(2), [1, 2], packed=False)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = content.copy()
        for at in rng.integers(128, 200, 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(DataError):
            SvhnSource(str(path)).take(np.arange(2))


def test_an_array_that_says_more_than_it_holds(tmp_path):
    path = tmp_path / "a.mat"
    write(path, digits(2), [1, 2])
    content = path.read_bytes()
    size = struct.unpack_from("<I", content, 132)[0]
    plain = bytearray(zlib.decompress(content[136 : 136 + size]))
    plain[36:40] = struct.pack("<i", 3)  # the rows, in the dimensions 32, 32, 3, 2
    packed = zlib.compress(bytes(plain))
    path.write_bytes(content[:128] + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(DataError, match="damaged"):
        SvhnSource(str(path))


def test_arrays_that_are_no_digits_are_described(tmp_path):
    path = tmp_path / "a.mat"
    scipy_io.savemat(path, {"Z": digits(1)})
    with pytest.raises(DataError, match=r"a\.mat has no arrays X, y; it has Z"):
        SvhnSource(str(path))
    write(path, digits(2)[:16], [1, 2])
    with pytest.raises(DataError, match=r"X is uint8 \(16, 32, 3, 2\), not uint8 \(32, 32, 3"):
        SvhnSource(str(path))
    write(path, digits(2), [1])
    with pytest.raises(DataError, match="2 images but 1 label"):
        SvhnSource(str(path))
    write(path, digits(2), [1, 11])
    with pytest.raises(DataError, match="row 1 has label 11; SVHN has labels 1 to 10"):
        SvhnSource(str(path))
