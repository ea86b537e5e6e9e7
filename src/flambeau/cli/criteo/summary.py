"""Summary table of `flambeau criteo`: the cost of each stage, and the metrics of the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flambeau.cli.criteo.records import PREPARED, RAW, Records
from flambeau.cli.criteo.stages import STAGES
from flambeau.observe.stage_display import shown_bytes

TITLES = {PREPARED: "From prepared features", RAW: "From the logs, with hashed ids"}


def show_summary(records: Records, console: Console | None = None) -> None:
    """Print the stages of each way that was used."""
    (console or Console()).print(Group(*_summary(records)))


def _summary(records: Records) -> Iterator[RenderableType]:
    ways = [way for way in (PREPARED, RAW) if records.of(way)]
    for way in ways:
        yield from _way(TITLES[way] if len(ways) > 1 else "", records.of(way))


def _way(title: str, stages: Mapping[str, Mapping[str, Any]]) -> Iterator[RenderableType]:
    table = Table("stage", title=title or None, title_justify="left", box=None, pad_edge=False)
    for name in ("seconds", "rows", "rows/s", "peak memory"):
        table.add_column(name, justify="right")
    for name in STAGES:
        if name in stages:
            table.add_row(name, *_cells(stages[name]))
    yield table
    sizes = stages.get("prepare", {}).get("sizes")
    if sizes:
        yield Text(f"vocabularies: {_sizes(sizes)}")
    metrics = stages.get("evaluate", {}).get("metrics")
    if metrics:
        found = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        yield Text(f"test: {found}\n")


def _cells(record: Mapping[str, Any]) -> Sequence[str]:
    seconds, rows, memory = record.get("seconds"), record.get("rows"), record.get("memory")
    return (
        "-" if seconds is None else f"{seconds:,.1f}",
        "-" if rows is None else f"{rows:,}",
        f"{rows / seconds:,.0f}" if rows and seconds else "-",
        "-" if memory is None else shown_bytes(memory),
    )


def _sizes(sizes: Mapping[str, int]) -> str:
    each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    return f"{sum(sizes.values()):,} ids ({each})"
