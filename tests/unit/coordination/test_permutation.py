import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.coordination.permutation import Permutation


def order(n: int, seed: int = 0, stream: int = 0) -> list[int]:
    return Permutation(n, seed, stream)(np.arange(n)).tolist()


@settings(max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 2**31), st.integers(0, 100))
def test_it_is_a_bijection(n: int, seed: int, stream: int) -> None:
    assert sorted(order(n, seed, stream)) == list(range(n))


@pytest.mark.parametrize("other", [(1, 0), (0, 1)], ids=["seed", "stream"])
def test_it_depends_on_its_key(other: tuple[int, int]) -> None:
    assert order(200, *other) != order(200, 0, 0)


def test_it_is_the_same_each_time() -> None:
    assert order(200, 5, 6) == order(200, 5, 6)


def test_any_positions_can_be_asked_for_alone() -> None:
    whole, some = order(100), np.array([99, 3, 50])
    assert Permutation(100, 0, 0)(some).tolist() == [whole[i] for i in some]


def test_it_mixes() -> None:
    n = 10_000
    rows = np.array(order(n))
    assert abs(np.corrcoef(np.arange(n), rows)[0, 1]) < 0.05
    assert abs(np.diff(rows)).mean() == pytest.approx(n / 3, rel=0.05)


def test_the_positions_are_not_changed() -> None:
    positions = np.arange(10)
    Permutation(10, 0, 0)(positions)
    assert positions.tolist() == list(range(10))
