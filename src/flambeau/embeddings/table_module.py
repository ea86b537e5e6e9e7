"""The base class of modules that look up rows."""

from typing import Any

from torch import nn

from flambeau.config.tables import TableSpec


class TableModule(nn.Module):
    """Module with a table: its spec, the column to fetch early, and the lookups to use.

    `copied`: it is a copy of a module whose table was attached, and lacks the rows.
    """

    spec: TableSpec
    prefetch: str | None
    fields: int | None
    only: tuple[int, ...] | None
    lookups: Any
    copied: bool
