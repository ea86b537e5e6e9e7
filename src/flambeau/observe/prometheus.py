"""The latest numbers of a run, as text that Prometheus reads."""

import math
from pathlib import Path
from typing import Any, final

from flambeau.observe.event import Event, Observer


@final
class LatestMetrics(Observer):
    """Keeps the latest numbers; another thread may read them at any time."""

    def __init__(self) -> None:
        self.progress: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.restarts = 0

    def observe(self, event: Event) -> None:
        # Whole dicts are replaced, never changed, so that a reader sees one moment.
        match event.kind:
            case "progress":
                self.progress = event.fields
            case "evaluation":
                self.metrics = event.fields["metrics"]
            case "restart":
                self.restarts += 1

    def close(self) -> None:
        """Nothing to let go of: the numbers stay readable."""


@final
class MetricsFile(Observer):
    """Keeps the latest numbers in a file, replaced as a whole, that a collector can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest = LatestMetrics()

    def observe(self, event: Event) -> None:
        self._latest.observe(event)
        if event.kind in ("progress", "evaluation", "restart"):
            partial = self._path.with_name(f".{self._path.name}.new")
            partial.write_text(metrics_text(self._latest))
            partial.replace(self._path)

    def close(self) -> None:
        """The file stays, with the last numbers."""


def metrics_text(latest: LatestMetrics) -> str:
    """All numbers known so far in Prometheus' text exposition format."""
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
        *_metrics(latest.metrics),
        *_family(
            "restarts_total", "counter", "Restarts after lost workers or servers.", latest.restarts
        ),
    ]
    return "".join(line + "\n" for line in lines)


def _family(name: str, kind: str, meaning: str, value: Any) -> list[str]:
    if value is None:
        return []
    return [*_head(name, kind, meaning), f"flambeau_{name} {_number(value)}"]


def _metrics(metrics: dict[str, Any]) -> list[str]:
    samples = [
        f'flambeau_metric{{name="{_escape(name)}"}} {_number(value)}'
        for name, value in metrics.items()
        if value is not None
    ]
    return [*_head("metric", "gauge", "Metrics of the last evaluation."), *samples]


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
