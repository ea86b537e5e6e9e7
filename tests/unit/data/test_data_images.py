import numpy as np
import pytest
import torch

from flambeau.config import Images
from flambeau.data.batch import Batch
from flambeau.data.images import ImageTransform
from flambeau.errors import ConfigError, DataError

PIXELS = torch.arange(1, 1 + 8 * 3 * 5 * 4).remainder(256).to(torch.uint8).reshape(8, 3, 5, 4)


def batch(images=PIXELS, epoch=0, index=0):
    return Batch({"image": images, "label": torch.arange(len(images))}, len(images), epoch, index)


def transform(data, train=True, seed=0, **settings):
    return ImageTransform(Images(**settings))(data, train=train, seed=seed)


def test_integer_images_become_fractions_of_255():
    out = transform(batch())
    torch.testing.assert_close(out["image"], PIXELS.float() / 255)
    assert out["label"].tolist() == list(range(8))


def test_float_images_are_not_scaled():
    images = torch.rand(2, 1, 3, 3)
    torch.testing.assert_close(transform(batch(images))["image"], images)


def test_mean_and_std_are_per_channel():
    out = transform(batch(), mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    torch.testing.assert_close(out["image"][:, 2], (PIXELS[:, 2] / 255 - 0.3) / 4.0)


def test_the_given_images_are_not_changed():
    before = torch.rand(2, 1, 3, 3)
    images = before.clone()
    transform(batch(images), mean=(0.5,), std=(0.5,), crop_padding=1, flip=True)
    assert torch.equal(images, before)


def windows(image, padding):
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    _, height, width = image.shape
    steps = range(2 * padding + 1)
    return [padded[:, y : y + height, x : x + width] for y in steps for x in steps]


def test_crops_are_windows_of_the_zero_padded_image():
    out = (transform(batch(), crop_padding=2)["image"] * 255).round().numpy()
    chosen = []
    for before, after in zip(PIXELS.numpy(), out, strict=True):
        matches = [n for n, w in enumerate(windows(before, 2)) if np.array_equal(w, after)]
        assert matches
        chosen.append(matches[0])
    assert len(set(chosen)) > 1


def test_about_half_of_the_images_are_flipped():
    images = torch.rand(400, 1, 2, 3)
    out = transform(batch(images), flip=True)["image"]
    flipped = (out == images.flip(3)).flatten(1).all(1)
    kept = (out == images).flatten(1).all(1)
    assert torch.equal(flipped, ~kept)
    assert 120 < int(flipped.sum()) < 280


def test_flips_do_not_change_where_images_are_cropped():
    cropped = transform(batch(), crop_padding=2)["image"]
    both = transform(batch(), crop_padding=2, flip=True)["image"]
    same = (both == cropped).flatten(1).all(1)
    assert not same.all()
    assert torch.equal(both[~same], cropped[~same].flip(3))


RANDOM = {"crop_padding": 3, "flip": True}


def test_evaluation_is_not_random():
    torch.testing.assert_close(transform(batch(), train=False, **RANDOM)["image"], PIXELS / 255)


def test_random_numbers_repeat_for_the_same_batch():
    torch.manual_seed(1)
    first = transform(batch(epoch=1, index=2), **RANDOM)["image"]
    torch.manual_seed(2)
    assert torch.equal(first, transform(batch(epoch=1, index=2), **RANDOM)["image"])


@pytest.mark.parametrize("key", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0)])
def test_random_numbers_depend_on_seed_epoch_and_index(key):
    seed, epoch, index = key
    other = transform(batch(epoch=epoch, index=index), seed=seed, **RANDOM)["image"]
    assert not torch.equal(transform(batch(), **RANDOM)["image"], other)


def test_epoch_and_index_are_kept():
    out = transform(batch(epoch=4, index=5))
    assert (out.epoch, out.index) == (4, 5)


def test_named_column_is_chosen_among_several():
    two = Batch({"left": PIXELS, "right": PIXELS}, 8)
    out = transform(two, column="right")
    assert out["left"].dtype == torch.uint8
    assert out["right"].dtype == torch.float32
    with pytest.raises(DataError, match=r"left, right.*give images.column"):
        transform(two)


def test_missing_image_column_lists_the_columns():
    data = Batch({"age": torch.ones(2)}, 2)
    with pytest.raises(DataError, match=r"no column holds images.*columns are age"):
        transform(data)
    with pytest.raises(DataError, match=r"images.column='age' is not a column of images"):
        transform(data, column="age")


def test_channels_must_fit_mean_and_std():
    with pytest.raises(ConfigError, match="have 1 value, but column 'image' has 3 channels"):
        transform(batch(), mean=(0.5,), std=(0.5,))
