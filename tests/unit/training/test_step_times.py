"""Where the time of steps went."""

import pytest

from flambeau.strategies.base import TableSeconds
from flambeau.training.step_times import StepTimes


def test_what_is_neither_data_nor_tables_nor_waiting_is_dense() -> None:
    readings = iter([TableSeconds(1.0, 1.0), TableSeconds(3.0, 2.0)])
    times = StepTimes(lambda: next(readings))
    times.begin()
    times.end(10.0, data_seconds=3.0)
    assert times.per_step() == {"data": 3.0, "dense": 4.0, "sparse": 2.0, "wait": 1.0}


def test_they_are_means_of_all_steps_without_what_was_between_them() -> None:
    readings = iter([TableSeconds(), TableSeconds(2.0), TableSeconds(9.0), TableSeconds(13.0)])
    times = StepTimes(lambda: next(readings))
    for seconds in (4.0, 8.0):
        times.begin()
        times.end(seconds, data_seconds=0.0)
    assert times.per_step() == {"data": 0.0, "dense": 3.0, "sparse": 3.0, "wait": 0.0}


def test_no_steps_take_no_time() -> None:
    assert sum(StepTimes(TableSeconds).per_step().values()) == pytest.approx(0.0)
