import math

import pytest
import torch
from torch import Tensor

from flambeau.strategies.group import Group, Solo
from flambeau.training.pulse import MAX_STEPS, PULSE_SECONDS, Pulse


class WithAnother(Group):
    """A group whose other worker reports a given vector."""

    rank = 0
    size = 2

    def __init__(self, other: list[float]) -> None:
        self._other = torch.tensor(other, dtype=torch.float64)

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor + self._other

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        return [data, data]


def test_the_first_step_is_a_beat_also_of_a_resumed_run() -> None:
    assert Pulse(Solo(), 0).due(1)
    assert not Pulse(Solo(), 100).due(100)
    assert Pulse(Solo(), 100).due(101)


@pytest.mark.parametrize(
    ("seconds", "steps"), [(PULSE_SECONDS / 4, 4), (10.0, 1), (0.0, MAX_STEPS)]
)
def test_the_next_beat_follows_from_how_long_a_step_takes(seconds: float, steps: int) -> None:
    pulse = Pulse(Solo(), 0)
    pulse.add(1.0, 8, seconds, 0.0)
    pulse.agree(1, stop=False, communication=0.0)
    assert not pulse.due(steps)
    assert pulse.due(1 + steps)


def test_the_loss_is_the_mean_over_the_rows_of_all() -> None:
    pulse = Pulse(WithAnother([6.0, 2, 1, 0.5, 0.25, 0.5, 0.0]), 0)
    pulse.add(1.0, 4, 1.0, 0.5)
    pulse.add(2.0, 2, 1.5, 0.25)
    beat = pulse.agree(2, stop=False, communication=0.25)
    assert (beat.loss, beat.rows) == ((4 + 4 + 6) / 8, 8)
    assert (beat.step_seconds, beat.data_seconds) == (1.0, pytest.approx(1 / 3))
    assert beat.communication_seconds == 0.375


@pytest.mark.parametrize(("mine", "theirs"), [(True, 0.0), (False, 1.0), (True, 1.0)])
def test_anybody_may_ask_to_stop(mine: bool, theirs: float) -> None:
    pulse = Pulse(WithAnother([0, 0, 0, 0, 0, 0, theirs]), 0)
    assert pulse.agree(1, stop=mine, communication=0.0).stop


def test_nobody_asked_nobody_stops() -> None:
    assert not Pulse(WithAnother([0.0] * 7), 0).agree(1, stop=False, communication=0.0).stop


def test_a_beat_starts_from_nothing() -> None:
    pulse = Pulse(Solo(), 0)
    pulse.add(1.0, 4, 1.0, 0.5)
    pulse.agree(1, stop=False, communication=0.0)
    beat = pulse.agree(2, stop=False, communication=0.0)
    assert beat.rows == 0
    assert math.isnan(beat.loss)


def test_a_step_without_rows_does_not_count_in_the_loss() -> None:
    pulse = Pulse(Solo(), 0)
    pulse.add(3.0, 4, 1.0, 0.0)
    pulse.add(0.0, 0, 1.0, 0.0)
    assert pulse.agree(2, stop=False, communication=0.0).loss == 3.0
