"""The population stability index of two groups of values."""

import numpy as np
import pytest

from flambeau.features.summaries.drift import drift_between

RNG = np.random.default_rng(0)


def masked(values: np.ndarray, missing: float = 0.0) -> np.ma.MaskedArray:
    return np.ma.masked_array(values, RNG.random(len(values)) < missing)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("sizes", [(100_000, 100_000), (100_000, 200), (300, 70_000)])
def test_equal_groups_have_no_more_than_chance_gives(ordered: bool, sizes: tuple[int, int]) -> None:
    one, other = (masked(RNG.zipf(1.3, size) % 50, 0.1) for size in sizes)
    found = drift_between(one, other, ordered)
    assert found is not None
    assert not found.is_certain


def test_two_bins_have_the_index_of_the_formula() -> None:
    one = np.repeat([0, 1], [7000, 3000])
    other = np.repeat([0, 1], [4000, 6000])
    found = drift_between(masked(one), masked(other), True)
    assert found is not None
    expected = 0.3 * np.log(0.7 / 0.4) + -0.3 * np.log(0.3 / 0.6)
    assert found.index == pytest.approx(expected, rel=1e-3)
    assert found.is_certain


def test_missing_values_are_a_bin() -> None:
    values = RNG.normal(size=10_000)
    found = drift_between(masked(values), masked(values, 0.5), True)
    assert found is not None
    assert found.index > 0.25


@pytest.mark.parametrize("other", [3, 7])
def test_a_constant_that_changes_is_drift(other: int) -> None:
    found = drift_between(masked(np.full(1000, 5)), masked(np.full(1000, other)), True)
    assert found is not None
    assert found.index > 1
    assert found.is_certain


def test_a_shift_of_numbers_is_drift_and_infinite_ones_are_in_the_last_bins() -> None:
    one = np.append(RNG.normal(size=10_000), [np.inf, -np.inf])
    found = drift_between(masked(one), masked(one + 1), True)
    assert found is not None
    assert found.index == pytest.approx(1, abs=0.2)  # that of normal distributions


def test_without_values_there_is_none() -> None:
    assert drift_between(masked(np.zeros(0)), masked(np.zeros(3)), True) is None


def test_values_that_are_all_missing_can_be_compared() -> None:
    found = drift_between(masked(np.zeros(50), 1.1), masked(np.zeros(50)), True)
    assert found is not None
    assert found.is_certain
