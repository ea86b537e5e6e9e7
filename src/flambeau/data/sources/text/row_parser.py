"""Interface between a text format and the source that reads its files."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from flambeau.data.sources.text.row_faults import Fault
from flambeau.data.sources.text.text_lines import Bytes
from flambeau.errors import ConfigError


@dataclass(frozen=True)
class Parsed:
    """Rows of a block, the number of skipped rows, and the fault that ended it, if any."""

    batch: pa.RecordBatch
    skipped: int
    fault: Fault | None


class RowParser(ABC):
    """Parser from a block of whole lines to rows with the columns of `schema`.

    Blank lines are not rows.
    """

    schema: pa.Schema

    @abstractmethod
    def count(self, data: Bytes) -> int:
        """Return the number of lines that are rows, good or bad, without parsing them."""

    @abstractmethod
    def parse(self, data: Bytes, *, skip: bool) -> Parsed:
        """Return the rows in order: all good ones, or those before the first bad one."""

    @abstractmethod
    def describe(self, line: bytes) -> str:
        """Return what a row should look like, for the error message about a bad one."""


def label_names(labels: Sequence[str] | None, others: Sequence[str], least: int) -> tuple[str, ...]:
    """Return the names of the label columns; raise `ConfigError` if they cannot be used."""
    names = ("label",) if labels is None else labels
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"labels={labels!r}: give a list of column names")
    names = tuple(names)
    if len(names) < least:
        raise ConfigError(f"labels={labels!r}: give at least {least} column name")
    repeated = [name for name in names if names.count(name) > 1 or name in others]
    if repeated:
        raise ConfigError(f"labels={labels!r}: there is already a column {repeated[0]!r}")
    return names


def require_count(name: str, value: int, least: int) -> int:
    """Return a whole number given as option `name`; raise `ConfigError` if it is below `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r}: give a whole number of at least {least}")
    return value
