import numpy as np
import pytest
import torch

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.item_frequency import ItemFrequency


def zipf(items: int) -> np.ndarray:
    shares = 1.0 / np.arange(1, items + 1)
    return shares / shares.sum()


def test_it_converges_on_a_zipf_stream() -> None:
    rng, shares = np.random.default_rng(0), zipf(200)
    frequency = ItemFrequency(1 << 12, rate=0.002)
    for _ in range(400):
        frequency.count(torch.from_numpy(rng.choice(200, 256, p=shares)))
    found = frequency(torch.arange(200)).numpy()
    assert np.abs(np.log(found[:50] / shares[:50])).max() < 0.15
    assert np.corrcoef(np.log(found), np.log(shares))[0, 1] > 0.98


def test_it_follows_a_change() -> None:
    frequency = ItemFrequency(64, rate=0.1)
    for item in [1] * 50 + [2] * 50:
        frequency.count(torch.full((8,), item))
    assert frequency(torch.tensor([2])).item() > 0.99


def test_the_first_batches_have_the_mean_of_all() -> None:
    frequency = ItemFrequency(64, rate=0.001)
    frequency.count(torch.tensor([1, 1, 2, 3]))
    frequency.count(torch.tensor([1, 2, 2, 2]))
    assert torch.allclose(frequency(torch.tensor([1, 2, 3])), torch.tensor([0.375, 0.5, 0.125]))


def test_an_empty_batch_changes_nothing() -> None:
    frequency = ItemFrequency(64)
    frequency.count(torch.tensor([], dtype=torch.int64))
    assert frequency.batches.item() == 0.0


def test_collisions_only_make_shares_larger() -> None:
    rng = np.random.default_rng(1)
    frequency = ItemFrequency(16, rate=1.0)
    ids = torch.from_numpy(rng.integers(-(2**62), 2**62, 40))
    frequency.count(ids)
    assert (frequency(ids) >= 1 / 40 - 1e-6).all()


def test_the_mean_of_two_workers_is_that_of_their_rows() -> None:
    both, one, two = (ItemFrequency(64, rate=0.5) for _ in range(3))
    for first, second in [([1, 1], [2, 3]), ([2, 4], [1, 1])]:
        one.count(torch.tensor(first))
        two.count(torch.tensor(second))
        both.count(torch.tensor(first + second))
    assert torch.allclose((one.shares + two.shares) / 2, both.shares)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ModelError, match="buckets=100: give a power of 2"):
        ItemFrequency(100)
    with pytest.raises(ModelError, match="rate=0"):
        ItemFrequency(64, rate=0.0)
