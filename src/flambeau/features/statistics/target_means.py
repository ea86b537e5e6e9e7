"""Counts of each value, and sums of a target over its rows, in each fold of the rows.

Sums of floating-point numbers depend on the order in which they are added. So each shard has its
own sums, added up row by row, and these are added in the order of shards: results are bit-identical
for any assignment of shards, batch size and memory limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.errors import DataError
from flambeau.features.keys import keys_of, plain_values
from flambeau.features.statistics.disjoint_tables import disjoint_tables
from flambeau.features.statistics.partial_tables import PartialTables
from flambeau.features.statistics.partitions import in_partitions
from flambeau.features.statistics.sorted_tables import SortedTables
from flambeau.features.statistics.statistic import Accumulator, Statistic, Workspace
from flambeau.kernels.compiled import kernel, reproducible_kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index.index import Index

Array = np.ndarray[Any, Any]

_ORDER = (("value", "ascending"),)
#: Salt that makes folds independent of other random choices by row number, such as splits.
_SALT = np.uint64(0x7A2D9C41F06B83E5)


def folds_of_rows(shard: int, first: int, count: int, folds: int) -> Array:
    """Return a random, but reproducible, fold for each of `count` rows of a shard."""
    out = np.empty(count, np.int64)
    _folds_of_rows(np.uint64(shard), np.uint64(first), np.uint64(folds), out)
    return out


def smoothed_means(table: pa.Table, smoothing: float) -> Array:
    """Return the mean target of each value of a finished table, with each fold left out.

    The result is float32 [values, folds + 1]; column `i` leaves out fold `i`, and the last column
    none. Means are smoothed towards that of all rows (the prior), as if by `smoothing` more rows.
    The last row, that of missing values, is the prior itself.
    """
    counts, sums = _by_fold(table["counts"]), _by_fold(table["sums"])
    out = np.empty((counts.shape[0], counts.shape[1] + 1), np.float32)
    _smooth(counts, sums, float(smoothing), out)
    return out


@final
@dataclass(frozen=True)
class TargetMeans(Statistic):
    """Columns `value`, `counts` [folds] and `sums` [folds], in the order of values.

    `columns` are the column of values and the column of the target. The last row is that of missing
    values. Rows without a target are left out.
    """

    columns: tuple[str, ...]
    folds: int
    ordered = True

    def accumulator(self) -> Accumulator:
        column, target = self.columns
        return _ShardSums(column, target, self.folds)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        whole = pa.concat_tables(tables).combine_chunks()
        values, groups = _grouped(whole["value"].combine_chunks())
        counts, sums = _by_fold(whole["counts"]), _by_fold(whole["sums"])
        shards = whole["shard"].to_numpy()
        order = np.lexsort((counts.sum(axis=1), shards, groups))
        all_counts = np.zeros((len(values), self.folds), np.int64)
        all_sums = np.zeros((len(values), self.folds), np.float64)
        _add_shards(order, groups, shards, counts, sums, all_counts, all_sums)
        return pa.table({"value": values, "counts": _rows(all_counts), "sums": _rows(all_sums)})

    def finish(self, partitions: Sequence[pa.Table]) -> pa.Table:
        whole = pa.concat_tables(partitions).combine_chunks()
        if not self._has_rows(whole):
            raise self._missing()
        return whole.take(pc.sort_indices(whole, _ORDER))

    def stream(self, partials: PartialTables, space: Workspace) -> Iterator[pa.Table]:
        schema = self.merge([partials.schema.empty_table()]).schema
        found, has_rows = SortedTables(_ORDER, schema, space), False
        for part in partials.partitions:
            tables = partials.tables(part)
            for table in disjoint_tables(tables, self.merge, space, again=False):
                has_rows |= self._has_rows(table)
                found.add(table)
        if not has_rows:
            raise self._missing()
        yield from found.merged()

    def _has_rows(self, table: pa.Table) -> bool:
        """Return whether the target is known in any row; raise an error if a sum is not finite."""
        if not np.isfinite(_by_fold(table["sums"])).all():
            raise DataError(
                f"the target '{self.columns[1]}' is infinite in some rows, or too large to add"
            )
        return bool(_by_fold(table["counts"]).any())

    def _missing(self) -> DataError:
        return DataError(f"the target '{self.columns[1]}' is missing in all training rows")


@final
class _ShardSums(Accumulator):
    """Counts and sums of complete shards, and of the current shard so far.

    Rows of a shard are added in order, from its first one, and before those of other shards. Values
    have numbers from 1 in an index of all shards, and places from 1 in the sums of each shard that
    has them; 0 is for missing ones.
    """

    def __init__(self, column: str, target: str, folds: int) -> None:
        self._column, self._target, self._folds = column, target, folds
        self._shard, self._next_row = -1, 0
        self._was_taken = True  # `take` has returned everything
        self._complete: list[_Sums] = []
        self._index = Index()
        self._values: list[pa.Array] = []
        self._places = np.zeros(1, np.int64)  # of each value in the current shard, if it has one
        self._size = 1
        self._members = np.zeros(1, np.int64)  # the value at each place
        self._counts = np.zeros((1, folds), np.int64)
        self._sums = np.zeros((1, folds), np.float64)

    def add(self, arrays: Mapping[str, pa.Array], shard: int) -> None:
        if shard != self._shard:
            self._complete_shard()
            self._shard, self._next_row = shard, 0
        values = plain_values(arrays[self._column])
        targets = _numbers(arrays[self._target])
        folds = folds_of_rows(shard, self._next_row, len(values), self._folds)
        self._next_row += len(values)
        known = ~np.isnan(targets)
        if not known.all():
            values, targets, folds = values.filter(pa.array(known)), targets[known], folds[known]
        _add_targets(self._places_of(values), folds, targets, self._counts, self._sums)
        self._was_taken = False

    def _complete_shard(self) -> None:
        if not self._was_taken:
            self._complete.append(self._current())
        self._places[self._members[: self._size]] = 0
        self._counts[: self._size], self._sums[: self._size] = 0, 0
        self._size = 1

    def _current(self) -> "_Sums":
        """Return a copy of the sums of the current shard so far."""
        kept = slice(0, self._size)
        arrays = self._members[kept], self._counts[kept], self._sums[kept]
        return _Sums(self._shard, *(array.copy() for array in arrays))

    def _places_of(self, values: pa.Array) -> Array:
        """Return the place of each value, and make room for all of them."""
        present = values.is_valid().to_numpy(zero_copy_only=False)
        numbers = np.zeros(len(values), np.int64)
        numbers[present] = self._numbers_of(values.drop_null())
        room = min(self._size + len(numbers), len(self._places))
        self._members = _grown(self._members, room)
        self._size = _enter(numbers, self._places, self._members, self._size)
        self._counts = _grown(self._counts, self._size)
        self._sums = _grown(self._sums, self._size)
        return numbers

    def _numbers_of(self, values: pa.Array) -> Array:
        """Return the number of each value, in the index of all shards."""
        found, is_new = self._index.find_or_insert(keys_of(values))
        new = values.filter(pa.array(is_new))
        if pa.types.is_floating(new.type):  # -0.0 and 0.0 have one key, and either may come first
            new = pa.array(new.to_numpy(zero_copy_only=False) + 0, new.type)
        if len(new) or not self._values:
            self._values.append(new)
        self._places = _grown(self._places, self._index.rows_ever + 1)
        return found + 1

    @property
    def nbytes(self) -> int:
        """Bytes that `take` releases: memory of the current shard is kept."""
        if not self._complete:
            return 0
        values = sum(int(each.nbytes) for each in self._values)
        return values + sum(each.nbytes for each in self._complete) + self._index.nbytes

    def take(self) -> dict[int, pa.Table]:
        # Sums of the current shard are returned as they are so far, and kept for its other rows: a
        # merge uses those of the most rows.
        taken = self._complete if self._was_taken else [*self._complete, self._current()]
        self._complete, self._was_taken = [], True
        if not taken:
            return {}
        values = pa.concat_arrays([pa.nulls(1, self._values[0].type), *self._values])
        self._keep(values.take(pa.array(self._members[1 : self._size])))
        return in_partitions(
            pa.table(
                {
                    "value": values.take(pa.array(np.concatenate([x.members for x in taken]))),
                    "shard": np.repeat([x.shard for x in taken], [len(x.members) for x in taken]),
                    "counts": _rows(np.concatenate([x.counts for x in taken])),
                    "sums": _rows(np.concatenate([x.sums for x in taken])),
                }
            )
        )

    def _keep(self, values: pa.Array) -> None:
        """Remove all values but those of the current shard, which are given by their places."""
        self._index, self._values = Index(), [values]
        self._index.find_or_insert(keys_of(values))
        self._places = np.arange(self._size)
        self._members = np.arange(self._size)


@dataclass(frozen=True)
class _Sums:
    """The sums of a shard: the numbers of its values, and counts and sums [values, folds]."""

    shard: int
    members: Array
    counts: Array
    sums: Array

    @property
    def nbytes(self) -> int:
        return int(self.members.nbytes + self.counts.nbytes + self.sums.nbytes)


def _grouped(values: pa.Array) -> tuple[pa.Array, Array]:
    """Return the distinct values, and the index of each value among them."""
    present = values.is_valid().to_numpy(zero_copy_only=False)
    keys, numbers = np.unique(keys_of(values)[present], return_inverse=True)
    groups = np.full(len(values), len(keys))
    groups[present] = numbers
    _, first = np.unique(groups, return_index=True)
    return values.take(pa.array(first)), groups


def _numbers(column: pa.Array) -> Array:
    """Return float64 numbers, with NaN for missing ones."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    numbers: Array = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _rows(numbers: Array) -> pa.Array:
    """Return the rows of an array as lists, of a type that Parquet preserves."""
    flat = pa.array(np.ascontiguousarray(numbers).reshape(-1))
    kind = pa.list_(pa.field("element", flat.type), numbers.shape[1])
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)


def _by_fold(column: pa.ChunkedArray) -> Array:
    """Return lists as an array [values, folds]."""
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found: Array = flat.reshape(len(column), column.type.list_size)
    return found


def _grown(numbers: Array, size: int) -> Array:
    """Return an array with room for `size` items, those that are new being 0."""
    if size <= len(numbers):
        return numbers
    grown = np.zeros((max(size, 2 * len(numbers)), *numbers.shape[1:]), numbers.dtype)
    grown[: len(numbers)] = numbers
    return grown


@kernel
def _folds_of_rows(shard: Any, first: Any, folds: Any, out: Any) -> None:
    state = mix(mix(_SALT) ^ shard)
    for i in range(out.size):
        out[i] = np.int64(mix(state ^ (first + np.uint64(i))) % folds)


@kernel
def _enter(numbers: Any, places: Any, members: Any, size: int) -> int:
    """Replace numbers by places; new ones get the next. Return the number of places."""
    for i in range(numbers.size):
        number = numbers[i]
        if number > 0 and places[number] == 0:
            places[number] = size
            members[size] = number
            size += 1
        numbers[i] = places[number]
    return size


@reproducible_kernel
def _add_targets(places: Any, folds: Any, targets: Any, counts: Any, sums: Any) -> None:
    for i in range(places.size):
        counts[places[i], folds[i]] += 1
        sums[places[i], folds[i]] += targets[i]


@reproducible_kernel
def _add_shards(
    order: Any, groups: Any, shards: Any, counts: Any, sums: Any, all_counts: Any, all_sums: Any
) -> None:
    """Add up the sums of shards; of several states of a shard's sums, only the last counts."""
    for k in range(order.size):
        row = order[k]
        if k + 1 < order.size:
            after = order[k + 1]
            if groups[after] == groups[row] and shards[after] == shards[row]:
                continue
        for fold in range(counts.shape[1]):
            all_counts[groups[row], fold] += counts[row, fold]
            all_sums[groups[row], fold] += sums[row, fold]


@reproducible_kernel
def _smooth(counts: Any, sums: Any, smoothing: float, out: Any) -> None:
    values, folds = counts.shape
    mean = 0.0  # of all rows: the prior if there are none in other folds
    for left_out in range(folds, -1, -1):
        count, total = 0, 0.0
        for i in range(values):
            for fold in range(folds):
                if fold != left_out:
                    count += counts[i, fold]
                    total += sums[i, fold]
        prior = total / count if count > 0 else mean
        if left_out == folds:
            mean = prior
        for i in range(values - 1):
            count, total = 0, 0.0
            for fold in range(folds):
                if fold != left_out:
                    count += counts[i, fold]
                    total += sums[i, fold]
            if count > 0:
                out[i, left_out] = np.float32((total + smoothing * prior) / (count + smoothing))
            else:
                out[i, left_out] = np.float32(prior)
        out[values - 1, left_out] = np.float32(prior)
