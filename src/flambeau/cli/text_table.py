"""Tables: drawn on a terminal, plain lines elsewhere."""

from collections.abc import Sequence
from typing import Any

import typer

from flambeau.reports.plain_text import printable

#: Longer values are truncated.
MOST_CHARACTERS = 60


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal; elsewhere, lines with aligned columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    columns = [printable(column) for column in columns]
    rows = [[printable(cell) for cell in row] for row in rows]
    if console.is_terminal:
        shown = Table()
        for column in columns:
            shown.add_column(Text(column))
        for row in rows:
            shown.add_row(*map(Text, row))
        console.print(shown)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def as_text(value: Any) -> str:
    """Return a value as short text."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
