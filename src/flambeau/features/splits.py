"""Splits of rows into subsets for training, validation and test, without leaks between them.

A split depends on raw columns, the file or the number of a row, before any operation. Pipelines are
fitted on the training rows only.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from flambeau.config.settings import Settings
from flambeau.data.source import Shard
from flambeau.data.sources.row_share import rows_before
from flambeau.errors import DataError
from flambeau.features.keys import keys_of
from flambeau.features.operation import State
from flambeau.features.selection import select
from flambeau.features.statistics.kernels import uniform_of_keys, uniform_of_rows
from flambeau.features.statistics.statistic import Statistic
from flambeau.features.statistics.value_counts import ValueCounts

SUBSETS = ("train", "valid", "test")
TRAIN, VALID, TEST, UNUSED = 0, 1, 2, -1

#: One pattern of file names, or several.
Patterns = str | tuple[str, ...]
Fraction = Annotated[float, Field(ge=0, lt=1)]
#: A function that returns the subset of each row of a batch, given its columns, the number of its
#: shard and that of its first row.
Assign = Callable[[Mapping[str, pa.Array], int, int], np.ndarray[Any, np.dtype[np.int8]]]


class Split(Settings):
    """The base class of all splits."""

    kind: ClassVar[str]

    @property
    def reads(self) -> tuple[str, ...]:
        """The raw columns that it depends on."""
        return ()

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        """Return the statistics of all rows that it needs, under names of its choice."""
        return {}

    @abstractmethod
    def bind(self, shards: Sequence[Shard], state: State) -> Assign:
        """Return the function that gives the subset of each row."""

    def dump(self) -> dict[str, Any]:
        """Return its settings as plain values, for a file."""
        return {"kind": self.kind, **self.model_dump(mode="json")}


class _ByFraction(Split):
    """The base class of splits whose subsets are fractions of the rows."""

    valid: Fraction = 0.0
    test: Fraction = 0.0

    @model_validator(mode="after")
    def _some_train(self) -> "_ByFraction":
        if self.valid + self.test >= 1:
            raise ValueError(f"valid={self.valid} and test={self.test} leave no rows to train on")
        return self

    @property
    def bounds(self) -> list[float]:
        """The starts of validation and test, between 0 and 1."""
        return [1 - self.valid - self.test, 1 - self.test]

    def subsets_of(self, positions: Any) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Return the subset of each position between 0 and 1; training comes first."""
        found: np.ndarray[Any, np.dtype[np.int8]] = np.searchsorted(
            self.bounds, positions, side="right"
        ).astype(np.int8)
        return found


@final
class ByRatio(_ByFraction):
    """A split by fractions of the rows: at random by `seed`, or in order (`shuffle=False`)."""

    kind = "by_ratio"

    shuffle: bool = True
    seed: int = 0

    def bind(self, shards: Sequence[Shard], state: State) -> Assign:
        before = np.concatenate([[0], np.cumsum([shard.rows for shard in shards])])
        bounds = [rows_before(each, int(before[-1])) for each in self.bounds]

        def assign(arrays: Mapping[str, pa.Array], shard: int, first: int) -> Any:
            count = len(next(iter(arrays.values())))
            if self.shuffle:
                return self.subsets_of(uniform_of_rows(self.seed, shard, first, count))
            places = before[shard] + first + np.arange(count)
            return np.searchsorted(bounds, places, side="right").astype(np.int8)

        return assign


@final
class ByHash(_ByFraction):
    """A split by fractions of a column's values: all rows with one value are in the same subset."""

    kind = "by_hash"

    column: str
    seed: int = 0

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def bind(self, shards: Sequence[Shard], state: State) -> Assign:
        def assign(arrays: Mapping[str, pa.Array], shard: int, first: int) -> Any:
            return self.subsets_of(
                uniform_of_keys(self.seed, keys_of(_column(arrays, self.column)))
            )

        return assign


@final
class ByTime(_ByFraction):
    """A split by time: the earliest rows are for training, then validation, the latest for test.

    Rows with the same time are in the same subset, so fractions are met as closely as possible.
    """

    kind = "by_time"

    column: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        select([self.column], schema.names)
        return {"times": ValueCounts((self.column,))}

    def bind(self, shards: Sequence[Shard], state: State) -> Assign:
        times = state["times"].sort_by("value")
        positions = (np.cumsum(times["count"]) - times["count"].to_numpy()) / max(
            1, pc.sum(times["count"]).as_py()
        )
        # The subset of each time: that of the first of its rows.
        subsets = self.subsets_of(positions)
        firsts = [
            times["value"][int(np.argmax(subsets >= each))] if (subsets >= each).any() else None
            for each in (VALID, TEST)
        ]

        def assign(arrays: Mapping[str, pa.Array], shard: int, first: int) -> Any:
            column = _column(arrays, self.column)
            if column.null_count:
                row = first + pc.index(column.is_null(), True).as_py()
                raise DataError(
                    f"split by_time: column '{self.column}' has no value in row {row} of shard "
                    f"{shard}; fill it in, or split by something else"
                )
            later = [
                np.zeros(len(column), np.int8)
                if bound is None
                else pc.greater_equal(column, bound).to_numpy(zero_copy_only=False).astype(np.int8)
                for bound in firsts
            ]
            return later[0] + later[1]

        return assign


@final
class ByFile(Split):
    """A split by patterns of file names or paths; files that match none are not used.

    Files that match several patterns are divided into equal parts, in the order of their rows:
    `valid="day_23", test="day_23"` validates with the first half of the day.
    """

    kind = "by_file"

    train: Patterns
    valid: Patterns | None = None
    test: Patterns | None = None

    def bind(self, shards: Sequence[Shard], state: State) -> Assign:
        matches = [self._subsets(shard.path) for shard in shards]
        for number, name in enumerate(SUBSETS):
            pattern = getattr(self, name)
            if pattern is not None and not any(number in found for found in matches):
                names = ", ".join(sorted({PurePosixPath(shard.path).name for shard in shards})[:5])
                raise DataError(
                    f"split by_file: no file matches {name}={pattern!r}; files: {names}"
                )
        rows: dict[tuple[int, ...], int] = {}
        before = []  # of each shard: rows of earlier ones that match the same patterns
        for shard, found in zip(shards, matches, strict=True):
            before.append(rows.get(found, 0))
            rows[found] = before[-1] + shard.rows

        def assign(arrays: Mapping[str, pa.Array], shard: int, first: int) -> Any:
            count, found = len(next(iter(arrays.values()))), matches[shard]
            if len(found) < 2:
                return np.full(count, found[0] if found else UNUSED, np.int8)
            places = before[shard] + first + np.arange(count)
            bounds = [rows_before(n / len(found), rows[found]) for n in range(1, len(found))]
            return np.array(found, np.int8)[np.searchsorted(bounds, places, side="right")]

        return assign

    def _subsets(self, path: str) -> tuple[int, ...]:
        name = PurePosixPath(path).name
        return tuple(
            subset
            for subset, patterns in enumerate((self.train, self.valid, self.test))
            for several in [(patterns,) if isinstance(patterns, str) else patterns or ()]
            if any(fnmatchcase(each, pattern) for each in (name, path) for pattern in several)
        )


def by_ratio(
    valid: float = 0.0, test: float = 0.0, *, shuffle: bool = True, seed: int = 0
) -> ByRatio:
    """Return a split by fractions of the rows, at random or (`shuffle=False`) in their order."""
    return ByRatio(valid=valid, test=test, shuffle=shuffle, seed=seed)


def by_hash(column: str, valid: float = 0.0, test: float = 0.0, *, seed: int = 0) -> ByHash:
    """Return a split by the values of a column: for example, a user is in one subset only."""
    return ByHash(column=column, valid=valid, test=test, seed=seed)


def by_time(column: str, valid: float = 0.0, test: float = 0.0) -> ByTime:
    """Return a split by time: the latest rows are for test, those before them for validation."""
    return ByTime(column=column, valid=valid, test=test)


def by_file(train: Patterns, valid: Patterns | None = None, test: Patterns | None = None) -> ByFile:
    """Return a split by patterns of file names; files that match several are divided."""
    return ByFile(train=train, valid=valid, test=test)


def _column(arrays: Mapping[str, pa.Array], name: str) -> pa.Array:
    select([name], arrays)
    return arrays[name]
