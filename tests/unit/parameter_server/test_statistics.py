"""What is counted."""

import numpy as np
import pytest

from flambeau.config.tables import TableSpec
from flambeau.parameter_server.protocol import Key, Push, TablePart
from flambeau.parameter_server.statistics import Latencies, ServerStatistics
from flambeau.tables.table import Table


def push(*parts: TablePart) -> Push:
    return Push(
        1, 0, Key(0, 0, 0, 0), 1, 1, 1.0, 0, True, list(parts), False, [], [], 1.0, "none", []
    )


def test_without_durations_percentiles_are_0() -> None:
    assert Latencies().percentile(0.99) == 0.0


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_are_right_to_a_fifth(fraction: float) -> None:
    durations = np.geomspace(2e-5, 3.0, 1000)
    latencies = Latencies()
    for seconds in durations:
        latencies.add(float(seconds))
    exact = np.quantile(durations, fraction, method="inverted_cdf")
    assert exact <= latencies.percentile(fraction) * (1 + 1e-9)
    assert latencies.percentile(fraction) <= exact * 1.2


def test_one_long_duration_shows_at_the_end_only() -> None:
    latencies = Latencies()
    for _ in range(99):
        latencies.add(0.001)
    latencies.add(10.0)
    assert latencies.percentile(0.99) < 0.0013
    assert latencies.percentile(1.0) >= 10.0


def test_durations_without_end_and_of_nothing_are_taken() -> None:
    latencies = Latencies()
    latencies.add(0.0)
    latencies.add(float("inf"))
    assert latencies.percentile(0.5) == pytest.approx(1e-6)
    assert np.isfinite(latencies.percentile(1.0))


def test_requests_rows_and_time_add_up() -> None:
    statistics = ServerStatistics()
    statistics.pulled([(0, np.arange(3)), (1, np.arange(4))], 0.5)
    statistics.pulled([], 0.25)
    statistics.pushed(push(TablePart(0, 2), TablePart(1, 5)), 1.0)
    statistics.committed(2.0)
    summary = statistics.summary([])
    counts = {"pulls": 2, "rows_pulled": 7, "pushes": 1, "rows_pushed": 7, "rounds": 1}
    assert summary == counts | {"busy_seconds": 3.75, "staleness": {}, "tables": {}}


def test_staleness_is_a_histogram_by_age() -> None:
    statistics = ServerStatistics()
    for updates in (10, 2, 2, -1):
        statistics.stale(updates)
    summary = statistics.summary([])
    assert list(summary["staleness"].items()) == [("0", 1), ("2", 2), ("10", 1)]


def test_tables_tell_how_large_they_are() -> None:
    table = Table(TableSpec("item", 2), seed=0)
    table.push(np.array([1, 2, 3]), np.zeros((3, 2), np.float32))
    told = ServerStatistics().summary([table])["tables"]["item"]
    assert (told["rows"], told["admitted"], told["rejected"], told["evicted"]) == (3, 3, 0, 0)
    assert told["bytes"] == table.nbytes
