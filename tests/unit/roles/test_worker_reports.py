from typing import Any

import pytest
from fake_stage import spec

from flambeau.roles import worker_reports
from flambeau.roles.worker_reports import REPORT_SECONDS, WorkerReports
from flambeau.strategies.base import TableSeconds
from flambeau.training.step_times import StepTimes


class CoordinatorClient:
    def __init__(self) -> None:
        self.spec = spec(3)
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.marks = 0

    def mark(self) -> None:
        self.marks += 1

    def report(self, kind: str, **fields: Any) -> None:
        self.reports.append((kind, fields))


class Strategy:
    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def summary(self) -> dict[str, Any]:
        return self.counts


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_reports, "time", clock)
    return clock


@pytest.fixture
def coordinator() -> CoordinatorClient:
    return CoordinatorClient()


def reports(coordinator: Any, strategy: Any) -> WorkerReports:
    return WorkerReports(coordinator, strategy, StepTimes(TableSeconds))


def of_kind(coordinator: CoordinatorClient, kind: str) -> list[dict[str, Any]]:
    return [fields for each, fields in coordinator.reports if each == kind]


VIEW: Any = None


def test_a_worker_reports_every_two_seconds(clock: Clock, coordinator: CoordinatorClient) -> None:
    callback = reports(coordinator, Strategy(pulls=1))
    callback.on_step_end(VIEW)
    assert not coordinator.reports
    clock.now += REPORT_SECONDS
    callback.on_step_end(VIEW)
    callback.on_step_end(VIEW)
    assert of_kind(coordinator, "client") == [{"rank": 3, "pulls": 1}]
    assert coordinator.marks == 3


def test_and_once_more_at_the_end(clock: Clock, coordinator: CoordinatorClient) -> None:
    reports(coordinator, Strategy(pulls=1)).on_end(VIEW)
    assert of_kind(coordinator, "client") == [{"rank": 3, "pulls": 1}]


def test_without_servers_there_is_nothing_to_report_of_them(
    clock: Clock, coordinator: CoordinatorClient
) -> None:
    reports(coordinator, Strategy()).on_end(VIEW)
    assert not of_kind(coordinator, "client")


def test_steps_and_memory_are_reported_at_first_and_every_ten_seconds(
    clock: Clock, coordinator: CoordinatorClient
) -> None:
    callback = reports(coordinator, Strategy())
    for _ in range(6):
        clock.now += REPORT_SECONDS
        callback.on_step_end(VIEW)
    first, second = of_kind(coordinator, "worker")
    assert (first["rank"], first["steps"]) == (3, 0)
    assert first["seconds_per_step"].keys() == {"data", "dense", "sparse", "wait"}
    assert second["memory_bytes"] > 1 << 20
