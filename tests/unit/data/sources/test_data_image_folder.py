import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from flambeau.data.sources.image_folder import ImageFolderSource
from flambeau.errors import DataError


def save(path, colour, size=(4, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "dog" / "b.png", (10, 20, 30))
    save(tmp_path / "cat" / "deep" / "a.png", (1, 2, 3))
    save(tmp_path / "cat" / "z.PNG", (4, 5, 6))
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    return tmp_path


def test_folders_in_sorted_order_are_the_labels(folder):
    source = ImageFolderSource(str(folder))
    batch = source.take(np.array([2, 0]))
    assert (len(source), source.classes) == (3, ("cat", "dog"))
    assert batch["label"].tolist() == [1, 0]
    assert batch["path"].tolist() == [str(folder / "dog/b.png"), str(folder / "cat/deep/a.png")]
    assert batch["image"].dtype == torch.uint8
    assert batch["image"].shape == (2, 3, 3, 4)
    assert batch["image"][0, :, 0, 0].tolist() == [10, 20, 30]


def test_labels_are_read_without_decoding(folder):
    source = ImageFolderSource(str(folder), size=2)
    (folder / "dog" / "b.png").write_bytes(b"broken")
    assert source.take(np.array([2]), ["label"])["label"].tolist() == [1]


@pytest.mark.parametrize(("size", "shape"), [(8, (8, 8)), ([2, 5], (2, 5))])
def test_images_are_resized_to_height_and_width(folder, size, shape):
    save(folder / "dog" / "large.png", (0, 0, 0), (40, 30))
    image = ImageFolderSource(str(folder), size=size).take(np.arange(4))["image"]
    assert image.shape == (4, 3, *shape)


def test_one_channel_is_grey(folder):
    assert ImageFolderSource(str(folder), channels=1).take(np.arange(2))["image"].shape == (
        2,
        1,
        3,
        4,
    )


def test_given_classes_keep_their_numbers_when_folders_are_missing(folder):
    source = ImageFolderSource(str(folder), classes=["bird", "cat", "dog"])
    assert source.take(np.arange(3))["label"].tolist() == [1, 1, 2]


def test_source_survives_pickling(folder):
    source = pickle.loads(pickle.dumps(ImageFolderSource(str(folder))))
    assert source.take(np.array([1]))["image"][0, :, 0, 0].tolist() == [4, 5, 6]


def test_images_of_different_size_need_a_size(folder):
    save(folder / "dog" / "large.png", (0, 0, 0), (40, 30))
    with pytest.raises(DataError, match=r"large\.png is 30 x 40 .* 3 x 4: give size="):
        ImageFolderSource(str(folder)).take(np.arange(4))


@pytest.mark.parametrize("cut", [5, 45])
def test_undecodable_image_is_named(folder, cut):
    broken = folder / "dog" / "b.png"
    broken.write_bytes(broken.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"b\.png cannot be decoded"):
        ImageFolderSource(str(folder)).take(np.array([2]))


def test_undecodable_first_image_is_named(folder):
    (folder / "cat" / "deep" / "a.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"a\.png cannot be decoded"):
        ImageFolderSource(str(folder))


def test_wrong_folders_are_refused(folder):
    with pytest.raises(DataError, match=r"'dog' .* not one of classes"):
        ImageFolderSource(str(folder), classes=["cat"])
    with pytest.raises(DataError, match="not a directory"):
        ImageFolderSource(str(folder / "missing"))
    with pytest.raises(DataError, match="no class folders"):
        ImageFolderSource(str(folder / "dog"))
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="empty' holds no images"):
        ImageFolderSource(str(folder))


@pytest.mark.parametrize("options", [{"channels": 4}, {"size": 0}, {"size": [1, 2, 3]}])
def test_wrong_options_are_refused(folder, options):
    with pytest.raises(DataError, match=next(iter(options))):
        ImageFolderSource(str(folder), **options)
