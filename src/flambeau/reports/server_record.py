"""Counts of servers and their clients over the time of a run."""

import math
from collections import Counter
from typing import Any, final

import msgspec

from flambeau.observe.event import Event
from flambeau.observe.server_stats import tables_in
from flambeau.reports.points import Points

SERVER_NUMBERS = ["pulls_per_second", "pushes_per_second", "staleness_mean"]
CLIENT_NUMBERS = ["pull_seconds_p50", "pull_seconds_p99"]
TABLE_NUMBERS = ["rows", "bytes"]
#: Most servers, and most workers, with curves; above it, only the latest numbers are kept.
WITH_CURVES = 64


@final
class LatestCounts(msgspec.Struct):
    """The latest event of a server or a worker, and its numbers over time."""

    points: Points
    time: float = 0.0
    fields: dict[str, Any] = {}
    #: Of a server: pulls, pushes, gradients, and the sum of their staleness.
    sums: tuple[int, int, int, int] = (0, 0, 0, 0)
    #: Of a server: rows and bytes of its tables.
    sizes: tuple[int, int] = (0, 0)
    #: Of a server: staleness counts of the processes that it replaced.
    earlier_staleness: dict[int, int] = {}


@final
class ServerRecord(msgspec.Struct):
    """Servers by shard, clients by rank of their worker, and tables over all shards."""

    servers: dict[int, LatestCounts] = {}
    clients: dict[int, LatestCounts] = {}
    table_sizes: Points = msgspec.field(default_factory=lambda: Points(TABLE_NUMBERS))

    def add_server(self, event: Event, elapsed: float, step: int) -> None:
        """Add a `server` event."""
        fields = event.fields
        latest = self.servers.get(fields["shard"])
        if latest is None:
            latest = self.servers[fields["shard"]] = LatestCounts(Points(SERVER_NUMBERS))
        sums, seconds = _sums(fields), event.time - latest.time
        pulls, pushes, gradients, lateness = map(int.__sub__, sums, latest.sums)
        if pulls < 0 or pushes < 0:  # a replacement process counts from 0
            staleness = Counter(latest.earlier_staleness)
            staleness.update(_histogram(latest.fields))
            latest.earlier_staleness = dict(staleness)
        elif latest.time and seconds > 0 and len(self.servers) <= WITH_CURVES:
            stale = lateness / gradients if gradients > 0 else math.nan
            latest.points.add(elapsed, step, pulls / seconds, pushes / seconds, stale)
        tables = fields["tables"].values()
        latest.sizes = (sum(t["rows"] for t in tables), sum(t["bytes"] for t in tables))
        latest.time, latest.fields, latest.sums = event.time, fields, sums
        if len(self.servers) == fields["shards"]:
            rows, sizes = zip(*(each.sizes for each in self.servers.values()), strict=True)
            self.table_sizes.add(elapsed, step, sum(rows), sum(sizes))

    def add_client(self, event: Event, elapsed: float, step: int) -> None:
        """Add a `client` event."""
        rank = event.fields["rank"]
        latest = self.clients.get(rank)
        if latest is None:
            latest = self.clients[rank] = LatestCounts(Points(CLIENT_NUMBERS))
        latest.time, latest.fields = event.time, event.fields
        if len(self.clients) <= WITH_CURVES and event.fields.get("pulls"):
            numbers = (event.fields.get(name) or math.nan for name in CLIENT_NUMBERS)
            latest.points.add(elapsed, step, *numbers)

    def tables(self) -> dict[str, dict[str, int]]:
        """Return the counters of each table, over all shards."""
        return tables_in(latest.fields for latest in self.servers.values())

    def staleness(self) -> dict[int, int]:
        """Return the number of gradients by staleness (updates), over all shards."""
        total: Counter[int] = Counter()
        for latest in self.servers.values():
            total.update(latest.earlier_staleness)
            total.update(_histogram(latest.fields))
        return dict(sorted(total.items()))


def _sums(fields: dict[str, Any]) -> tuple[int, int, int, int]:
    staleness = fields["staleness"]
    lateness = sum(int(updates) * count for updates, count in staleness.items())
    return fields.get("pulls", 0), fields.get("pushes", 0), sum(staleness.values()), lateness


def _histogram(fields: dict[str, Any]) -> dict[int, int]:
    return {int(updates): count for updates, count in fields["staleness"].items()}
