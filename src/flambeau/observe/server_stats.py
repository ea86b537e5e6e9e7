"""Statistics from the parameter server's events: rates, staleness, and totals of tables."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, final

from flambeau.observe.event import Event

#: The counters of a table; they can be summed over shards.
TABLE_COUNTERS = ("rows", "bytes", "admitted", "rejected", "evicted")


@final
class Shards:
    """The latest reports of all shards, and the changes since the reports before."""

    def __init__(self) -> None:
        self._latest: dict[int, Event] = {}
        self._staleness: dict[int, Counter[int]] = {}

    def add(self, event: Event) -> dict[str, float | None]:
        """Add a `server` event; return `pulls_per_second`, `pushes_per_second`, `staleness_mean`.

        They cover the time since the shard's previous event; None if there is no value.
        """
        shard, fields = event.fields["shard"], event.fields
        before = self._latest.get(shard)
        if before is not None and _began_anew(before.fields, fields):
            before = None
        self._latest[shard] = event
        known = before.fields["staleness"] if before is not None else {}
        self._staleness[shard] = _histogram(fields["staleness"]) - _histogram(known)
        return {
            "pulls_per_second": _rate("pulls", before, event),
            "pushes_per_second": _rate("pushes", before, event),
            "staleness_mean": _mean(self._staleness[shard]),
        }

    @property
    def count(self) -> int:
        """The number of shards; 0 until one has reported."""
        return max((event.fields["shards"] for event in self._latest.values()), default=0)

    @property
    def staleness(self) -> float | None:
        """The mean age of recent gradients, in updates; None if there were none."""
        return _mean(sum(self._staleness.values(), Counter()))

    def tables(self) -> dict[str, dict[str, int]]:
        """Return `TABLE_COUNTERS` of each table, over all shards; empty until all have reported."""
        if len(self._latest) < self.count:
            return {}
        return tables_in(event.fields for event in self._latest.values())


def tables_in(shards: Any) -> dict[str, dict[str, int]]:
    """Return `TABLE_COUNTERS` of each table, summed over the fields of `server` events."""
    tables: dict[str, Counter[str]] = {}
    for fields in shards:
        for name, counters in fields["tables"].items():
            tables.setdefault(name, Counter()).update(counters)
    return {name: {key: sums[key] for key in TABLE_COUNTERS} for name, sums in tables.items()}


def staleness_mean(fields: Mapping[str, Any]) -> float | None:
    """Return the mean staleness, in updates, of all gradients that a shard has applied."""
    return _mean(_histogram(fields["staleness"]))


def client_numbers(fields: Mapping[str, Any]) -> dict[str, float | None]:
    """Return statistics of a `client` event.

    They are the seconds per pull (`pull_seconds_p50`, `pull_seconds_p99`), the number of lookups
    per id that was sent (`dedup`), the share of rows that were prefetched in time
    (`prefetch_hit_rate`), and `requests_resent`.
    """
    pulled = bool(fields.get("pulls"))
    hits, misses = fields.get("prefetch_hits", 0), fields.get("prefetch_misses", 0)
    return {
        "pull_seconds_p50": fields.get("pull_seconds_p50") if pulled else None,
        "pull_seconds_p99": fields.get("pull_seconds_p99") if pulled else None,
        "dedup": _ratio(fields.get("ids_seen", 0), fields.get("ids_distinct", 0)),
        "prefetch_hit_rate": _ratio(hits, hits + misses),
        "requests_resent": fields.get("requests_resent"),
    }


def _began_anew(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether a shard's process was replaced, so that its counts began at 0 again."""
    return any(now.get(name, 0) < before.get(name, 0) for name in ("pulls", "pushes"))


def _rate(name: str, before: Event | None, now: Event) -> float | None:
    if before is None or now.time <= before.time:
        return None
    count: int = now.fields.get(name, 0) - before.fields.get(name, 0)
    return count / (now.time - before.time)


def _histogram(staleness: Mapping[str, int]) -> Counter[int]:
    return Counter({int(updates): count for updates, count in staleness.items()})


def _mean(histogram: Counter[int]) -> float | None:
    return _ratio(sum(value * count for value, count in histogram.items()), histogram.total())


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
