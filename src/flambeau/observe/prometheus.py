"""The latest metrics of a run, in Prometheus' text format."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from flambeau.observe.event import Event, Observer
from flambeau.observe.server_stats import client_numbers, staleness_mean, tables_in

_KINDS = ("progress", "evaluation", "server", "client", "restart")

#: The fields of `server` events that only grow.
_SERVER_COUNTS = {
    "pulls": "Pulls answered.",
    "pushes": "Pushes accepted.",
    "rows_pulled": "Rows of tables sent to workers.",
    "rows_pushed": "Rows of gradients taken from workers.",
    "busy_seconds": "Seconds spent on requests.",
}
_TABLE_MEANINGS = {
    "rows": "Rows of a table.",
    "bytes": "Memory of a table.",
    "admitted": "Ids that were given a row.",
    "rejected": "Ids in batches that were not admitted to the table.",
    "evicted": "Rows that were removed.",
}
_CLIENT_MEANINGS = {
    "pull_seconds_p50": "Median time of a worker's pulls, in seconds.",
    "pull_seconds_p99": "99th percentile of the time of a worker's pulls, in seconds.",
    "dedup": "Look-ups of an id for each time that it was sent.",
    "prefetch_hit_rate": "Share of rows that were fetched before they were needed.",
    "requests_resent": "Requests that were sent again after silence.",
}


@final
class LatestMetrics(Observer):
    """The latest metrics of a run; another thread may read them at any time."""

    def __init__(self) -> None:
        self.progress: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.servers: dict[int, dict[str, Any]] = {}
        self.clients: dict[int, dict[str, Any]] = {}
        self.restarts = 0

    def observe(self, event: Event) -> None:
        # Dicts are replaced, never changed, so that a reader sees values of the same time.
        match event.kind:
            case "progress":
                self.progress = event.fields
            case "evaluation":
                self.metrics = event.fields["metrics"]
            case "server":
                self.servers = {**self.servers, event.fields["shard"]: event.fields}
            case "client":
                self.clients = {**self.clients, event.fields["rank"]: event.fields}
            case "restart":
                self.restarts += 1

    def close(self) -> None:
        """Do nothing: the metrics stay readable."""


@final
class MetricsFile(Observer):
    """A file with the latest metrics for a collector; it is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest = LatestMetrics()

    def observe(self, event: Event) -> None:
        self._latest.observe(event)
        if event.kind in _KINDS:
            partial = self._path.with_name(f".{self._path.name}.new")
            partial.write_text(metrics_text(self._latest))
            partial.replace(self._path)

    def close(self) -> None:
        """Do nothing: the file stays, with the last metrics."""


def metrics_text(latest: LatestMetrics) -> str:
    """Return all metrics known so far in Prometheus' text exposition format."""
    progress = latest.progress
    lines = [
        *_family("step", "gauge", "Optimizer steps done.", progress.get("step")),
        *_family("rows_total", "counter", "Rows trained on.", progress.get("rows")),
        *_family(
            "rows_per_second",
            "gauge",
            "Rows trained on per second by all workers.",
            progress.get("rows_per_second"),
        ),
        *_family("loss", "gauge", "Training loss.", progress.get("loss")),
        *_labelled("metric", "gauge", "Metrics of the last evaluation.", "name", latest.metrics),
        *_servers(latest.servers),
        *_tables(tables_in(latest.servers.values())),
        *_clients(latest.clients),
        *_family(
            "restarts_total", "counter", "Restarts after lost workers or servers.", latest.restarts
        ),
    ]
    return "".join(line + "\n" for line in lines)


def _servers(servers: dict[int, dict[str, Any]]) -> Iterator[str]:
    for name, meaning in _SERVER_COUNTS.items():
        counts = {shard: fields.get(name, 0) for shard, fields in servers.items()}
        yield from _labelled(f"server_{name}_total", "counter", meaning, "shard", counts)
    means = {shard: staleness_mean(fields) for shard, fields in servers.items()}
    meaning = "Mean updates that were made since a gradient's values were read."
    yield from _labelled("server_staleness_mean", "gauge", meaning, "shard", means)


def _tables(tables: dict[str, dict[str, int]]) -> Iterator[str]:
    for name, meaning in _TABLE_MEANINGS.items():
        held = name in ("rows", "bytes")
        family, kind = (f"table_{name}", "gauge") if held else (f"table_{name}_total", "counter")
        values = {table: counters[name] for table, counters in tables.items()}
        yield from _labelled(family, kind, meaning, "table", values)


def _clients(clients: dict[int, dict[str, Any]]) -> Iterator[str]:
    numbers = {rank: client_numbers(fields) for rank, fields in clients.items()}
    for name, meaning in _CLIENT_MEANINGS.items():
        values = {rank: own[name] for rank, own in numbers.items()}
        yield from _labelled(f"client_{name}", "gauge", meaning, "rank", values)


def _family(name: str, kind: str, meaning: str, value: Any) -> list[str]:
    if value is None:
        return []
    return [*_head(name, kind, meaning), f"flambeau_{name} {_number(value)}"]


def _labelled(
    name: str, kind: str, meaning: str, label: str, values: Mapping[Any, Any]
) -> list[str]:
    samples = [
        f'flambeau_{name}{{{label}="{_escape(str(of))}"}} {_number(value)}'
        for of, value in values.items()
        if value is not None
    ]
    return [*_head(name, kind, meaning), *samples] if samples else []


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP flambeau_{name} {meaning}", f"# TYPE flambeau_{name} {kind}"]


def _number(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return repr(number)


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
