import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from flambeau.coordination.step_sums import StepSums
from flambeau.strategies.group import Group, Solo
from flambeau.training import pulse as pulse_module
from flambeau.training.pulse import MAX_STEPS, PULSE_SECONDS, CollectivePulse, ReportedPulse


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
    assert CollectivePulse(Solo(), 0).due(1)
    assert not CollectivePulse(Solo(), 100).due(100)
    assert CollectivePulse(Solo(), 100).due(101)


@pytest.mark.parametrize(
    ("seconds", "steps"), [(PULSE_SECONDS / 4, 4), (10.0, 1), (0.0, MAX_STEPS)]
)
def test_the_next_beat_follows_from_how_long_a_step_takes(seconds: float, steps: int) -> None:
    pulse = CollectivePulse(Solo(), 0)
    pulse.add(1.0, 8, seconds, 0.0)
    pulse.agree(1, stop=False, communication=0.0)
    assert not pulse.due(steps)
    assert pulse.due(1 + steps)


def test_the_loss_is_the_mean_over_the_rows_of_all() -> None:
    pulse = CollectivePulse(WithAnother([6.0, 2, 1, 0.5, 0.25, 0.5, 0.0]), 0)
    pulse.add(1.0, 4, 1.0, 0.5)
    pulse.add(2.0, 2, 1.5, 0.25)
    beat = pulse.agree(2, stop=False, communication=0.25)
    progress = beat.sums.progress(elapsed=4.0)
    assert (progress["loss"], progress["rows_per_second"]) == ((4 + 4 + 6) / 8, 2.0)
    assert (beat.sums.seconds_per_step, progress["data_seconds"]) == (1.0, pytest.approx(1 / 3))
    assert progress["communication_seconds"] == pytest.approx((2 * 0.25 + 0.5) / 3)
    assert progress["compute_seconds"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("mine", "theirs"), [(True, 0.0), (False, 1.0), (True, 1.0)])
def test_anybody_may_ask_to_stop(mine: bool, theirs: float) -> None:
    pulse = CollectivePulse(WithAnother([0, 0, 0, 0, 0, 0, theirs]), 0)
    assert pulse.agree(1, stop=mine, communication=0.0).stop


def test_nobody_asked_nobody_stops() -> None:
    assert (
        not CollectivePulse(WithAnother([0.0] * 7), 0).agree(1, stop=False, communication=0.0).stop
    )


@pytest.mark.parametrize(("mine", "theirs"), [(True, 0.0), (False, 1.0), (False, 0.0)])
def test_with_callbacks_a_stop_is_agreed_on_between_beats(mine: bool, theirs: float) -> None:
    pulse = CollectivePulse(WithAnother([theirs]), 0, callbacks=True)
    assert pulse.stop_agreed(mine) is (mine or theirs > 0)


def test_without_callbacks_nothing_is_exchanged_between_beats() -> None:
    # The other worker's vector has another length: a sum would raise.
    assert not CollectivePulse(WithAnother([1.0, 1.0]), 0).stop_agreed(False)


def test_a_beat_starts_from_nothing() -> None:
    pulse = CollectivePulse(Solo(), 0)
    pulse.add(1.0, 4, 1.0, 0.5)
    pulse.agree(1, stop=False, communication=0.0)
    beat = pulse.agree(2, stop=False, communication=0.0)
    assert beat.sums.rows == 0
    assert math.isnan(beat.sums.progress(1.0)["loss"])


def test_a_step_without_rows_does_not_count_in_the_loss() -> None:
    pulse = CollectivePulse(Solo(), 0)
    pulse.add(3.0, 4, 1.0, 0.0)
    pulse.add(0.0, 0, 1.0, 0.0)
    sums = pulse.agree(2, stop=False, communication=0.0).sums
    assert sums.progress(1.0)["loss"] == 3.0


def test_a_step_that_was_skipped_does_not_count_in_the_loss() -> None:
    pulse = CollectivePulse(Solo(), 0)
    pulse.add(3.0, 4, 1.0, 0.0)
    pulse.add(math.nan, 4, 1.0, 0.0)
    sums = pulse.agree(2, stop=False, communication=0.0).sums
    assert (sums.loss, sums.rows) == (12.0, 4)


class Coordinator:
    """Hears what a worker reports; its clock stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.reports: list[dict[str, Any]] = []
        self.stops = 0
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(pulse_module, "time", clock)

    def pulse(self) -> ReportedPulse:
        return ReportedPulse(lambda **fields: self.reports.append(fields), self._want_stop)

    def _want_stop(self) -> None:
        self.stops += 1


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    return Coordinator(monkeypatch)


def test_a_worker_reports_after_its_first_step_and_then_at_its_own_pace(
    coordinator: Coordinator,
) -> None:
    pulse = coordinator.pulse()
    assert pulse.due(1)
    pulse.agree(1, stop=False, communication=0.0)
    coordinator.now += PULSE_SECONDS / 2
    assert not pulse.due(1_000_000)
    coordinator.now += PULSE_SECONDS / 2
    assert pulse.due(2)


def test_a_report_has_the_sums_since_the_last_one(coordinator: Coordinator) -> None:
    pulse = coordinator.pulse()
    pulse.add(9.0, 1, 9.0, 9.0)
    pulse.agree(1, stop=False, communication=0.0)
    pulse.add(1.0, 4, 1.0, 0.5)
    pulse.add(2.0, 2, 1.5, 0.25)
    pulse.agree(3, stop=False, communication=0.125)
    sums = StepSums(8.0, 6, 2, 2.5, 0.75, waiting_seconds=2 * 0.125)
    assert coordinator.reports[1] == {"step": 3, "sums": sums.numbers()}


def test_what_was_reported_is_told_by_the_coordinator_alone(coordinator: Coordinator) -> None:
    pulse = coordinator.pulse()
    pulse.add(1.0, 4, 1.0, 0.5)
    beat = pulse.agree(1, stop=True, communication=0.0)
    assert beat.sums.rows == 0
    assert not beat.stop


def test_the_coordinator_is_asked_once_to_stop(coordinator: Coordinator) -> None:
    pulse = coordinator.pulse()
    for step, stop in enumerate([False, True, True], start=1):
        pulse.agree(step, stop=stop, communication=0.0)
    assert coordinator.stops == 1
