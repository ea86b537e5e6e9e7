"""The seam between a format of text and the source that reads its files."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from flambeau.data.sources.text.row_faults import Fault
from flambeau.data.sources.text.text_lines import Bytes
from flambeau.errors import ConfigError


@dataclass(frozen=True)
class Parsed:
    """The rows of a block, how many were skipped, and the fault that ended it, if one did."""

    batch: pa.RecordBatch
    skipped: int
    fault: Fault | None


class RowParser(ABC):
    """From a block of whole lines to rows with the columns of `schema`. Blank lines are no rows."""

    schema: pa.Schema

    @abstractmethod
    def count(self, data: Bytes) -> int:
        """How many lines are rows, good or bad, without parsing them."""

    @abstractmethod
    def parse(self, data: Bytes, *, skip: bool) -> Parsed:
        """The rows in order: all that are good, or those before the first bad one."""

    @abstractmethod
    def describe(self, line: bytes) -> str:
        """What a row should look like, for the message about a bad one."""


def label_names(labels: Sequence[str] | None, others: Sequence[str], least: int) -> tuple[str, ...]:
    """The names of the label columns; raises `ConfigError` when they cannot be used."""
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
    """A whole number of at least `least`, given as option `name`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r}: give a whole number of at least {least}")
    return value
