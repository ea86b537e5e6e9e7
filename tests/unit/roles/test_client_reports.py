from typing import Any

import pytest
from fake_stage import spec

from flambeau.roles import client_reports
from flambeau.roles.client_reports import REPORT_SECONDS, ClientReports


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
    monkeypatch.setattr(client_reports, "time", clock)
    return clock


@pytest.fixture
def coordinator() -> CoordinatorClient:
    return CoordinatorClient()


def reports(coordinator: Any, strategy: Any) -> ClientReports:
    return ClientReports(coordinator, strategy)


VIEW: Any = None


def test_a_worker_reports_every_two_seconds(clock: Clock, coordinator: CoordinatorClient) -> None:
    callback = reports(coordinator, Strategy(pulls=1))
    callback.on_step_end(VIEW)
    assert not coordinator.reports
    clock.now += REPORT_SECONDS
    callback.on_step_end(VIEW)
    callback.on_step_end(VIEW)
    assert coordinator.reports == [("client", {"rank": 3, "pulls": 1})]
    assert coordinator.marks == 3


def test_and_once_more_at_the_end(clock: Clock, coordinator: CoordinatorClient) -> None:
    reports(coordinator, Strategy(pulls=1)).on_end(VIEW)
    assert coordinator.reports == [("client", {"rank": 3, "pulls": 1})]


def test_without_servers_there_is_nothing_to_report(
    clock: Clock, coordinator: CoordinatorClient
) -> None:
    reports(coordinator, Strategy()).on_end(VIEW)
    assert not coordinator.reports
