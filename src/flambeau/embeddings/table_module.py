"""What every module that looks rows up has in common."""

from typing import Any

from torch import nn

from flambeau.config.tables import TableSpec


class TableModule(nn.Module):
    """A module with a table: its spec, the column to fetch early, and who looks up for it.

    `copied`: it was made from one that had its table, whose rows it left behind.
    """

    spec: TableSpec
    prefetch: str | None
    fields: int | None
    only: tuple[int, ...] | None
    lookups: Any
    copied: bool
