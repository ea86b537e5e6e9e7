import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from flambeau.training import randomness


@pytest.fixture(autouse=True)
def generators_as_before() -> Iterator[None]:
    before = randomness.save()
    yield
    randomness.restore(before)


def draw() -> tuple[float, ...]:
    """From every generator, the normal ones too, which keep a second number in hand."""
    return (
        torch.rand(1).item(),
        torch.randn(3).sum().item(),
        float(np.random.rand()),
        float(np.random.randn()),
        random.random(),
        random.gauss(0, 1),
    )


def test_the_same_key_gives_the_same_numbers() -> None:
    randomness.seed_all(1, 2)
    first = draw()
    randomness.seed_all(1, 2)
    assert draw() == first


@pytest.mark.parametrize("other", [(1,), (1, 3), (2, 2)])
def test_another_key_gives_other_numbers_everywhere(other: tuple[int, ...]) -> None:
    randomness.seed_all(1, 2)
    first = draw()
    randomness.seed_all(*other)
    assert not set(draw()) & set(first)


def test_restored_generators_go_on_exactly_where_they_were_saved() -> None:
    randomness.seed_all(7)
    draw()
    state = randomness.save()
    expected = draw(), draw()
    randomness.seed_all(8)
    randomness.restore(state)
    assert (draw(), draw()) == expected


def test_saving_draws_nothing() -> None:
    randomness.seed_all(7)
    expected = draw()
    randomness.seed_all(7)
    randomness.save()
    assert draw() == expected
