"""Counters of servers and their clients, for the report and for monitoring."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, final

from flambeau.parameter_server.protocol import Push
from flambeau.tables.table import Table


@final
class Latencies:
    """Durations in bins that grow by a fifth: percentiles to about 10%, in constant memory."""

    _LEAST, _RATIO = 1e-6, 1.2

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one duration."""
        number, edge = 0, self._LEAST
        while edge < seconds and number < 120:
            number, edge = number + 1, edge * self._RATIO
        self._bins[number] += 1

    def percentile(self, fraction: float) -> float:
        """Return the seconds that this fraction of durations did not exceed; 0 without any."""
        left = fraction * sum(self._bins.values())
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                return self._LEAST * self._RATIO**number
        return 0.0


@final
class ServerStatistics:
    """Counters of one shard since its start."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.busy_seconds = 0.0
        self._staleness: Counter[int] = Counter()

    def pulled(self, wanted: Sequence[tuple[int, Any]], seconds: float) -> None:
        """Count a pull that was answered."""
        self.counts["pulls"] += 1
        self.counts["rows_pulled"] += sum(ids.size for _, ids in wanted)
        self.busy_seconds += seconds

    def pushed(self, push: Push, seconds: float) -> None:
        """Count a push that was handled."""
        self.counts["pushes"] += 1
        self.counts["rows_pushed"] += sum(part.count for part in push.parts)
        self.busy_seconds += seconds

    def committed(self, seconds: float) -> None:
        """Count a round that was applied."""
        self.counts["rounds"] += 1
        self.busy_seconds += seconds

    def stale(self, updates: int) -> None:
        """Count an applied gradient that was computed `updates` updates ago."""
        self._staleness[max(0, updates)] += 1

    def summary(self, tables: Sequence[Table]) -> dict[str, Any]:
        """Return all counters as plain values."""
        return {
            **self.counts,
            "busy_seconds": self.busy_seconds,
            "staleness": {str(k): n for k, n in sorted(self._staleness.items())},
            "tables": {table.spec.name: _counters(table) for table in tables},
        }


def _counters(table: Table) -> dict[str, int]:
    counters = table.counters
    return {
        "rows": counters.rows,
        "bytes": counters.bytes,
        "admitted": counters.admitted,
        "rejected": counters.rejected,
        "evicted": counters.evicted,
    }
