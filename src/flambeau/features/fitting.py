"""Fitting: one pass over the training rows for all statistics that do not depend on each other."""

import itertools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pyarrow as pa

from flambeau.data.source import StreamedSource
from flambeau.errors import ConfigError, DataError
from flambeau.features.fused_reading import fuse
from flambeau.features.operation import Operation, State, Step, TrainingRows, schema_after
from flambeau.features.statistics.partial_files import Gathering
from flambeau.features.statistics.statistic import Statistic
from flambeau.observe import Observer, Observers
from flambeau.observe.stages import Stages

MEMORY = 1 << 30
#: Progress is shown only if fitting takes more seconds than this.
QUIET_SECONDS = 2.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

#: Columns of a batch, and the position of its rows in the training data.
Rows = tuple[dict[str, pa.Array], TrainingRows]
#: A function that returns the finished statistics of one pass, in the order of `statistics_of`,
#: given the state of each operation so far and the indices of those that the pass fits.
FinishPass = Callable[[Sequence[State | None], Sequence[int]], list[pa.Table]]


def memory_bytes(memory: int | str | None) -> int:
    """Return a number of bytes, given as a number or as a text such as `4G`."""
    if memory is None:
        return MEMORY
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", str(memory), re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"memory={memory!r}: give bytes, or a text such as '4G'")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def fit_operations(
    operations: Sequence[Operation],
    source: StreamedSource,
    memory: int | str | None = None,
    observer: Observer | None = None,
) -> tuple[State, ...]:
    """Return the statistics that each operation needs, from all rows of a source.

    The observer receives the progress if fitting takes longer than `QUIET_SECONDS`.
    """
    limit = memory_bytes(memory)
    source, done = fuse(source, operations)
    rest = operations[done:]
    count = len(passes(rest, source.schema))
    rows = sum(shard.rows for shard in source.shards()) if count else 0
    stages = Stages(observer or Observers([]), count, quiet_seconds=QUIET_SECONDS)
    number = itertools.count(1)

    def finish(states: Sequence[State | None], numbers: Sequence[int]) -> list[pa.Table]:
        stage = FitStage.of(rest, source.schema, states, numbers)
        with (
            tempfile.TemporaryDirectory(prefix="flambeau-fit-") as folder,
            stages.stage("gather statistics", rows, 1, number=next(number)) as shown,
        ):
            gatherings = stage.gather(_all_rows(source, shown.add_rows), Path(folder), limit)
            return [gathering.finish(limit) for gathering in gatherings]

    return ({},) * done + fit_by_passes(rest, source.schema, finish)


def fit_by_passes(
    operations: Sequence[Operation], schema: pa.Schema, finish: FinishPass
) -> tuple[State, ...]:
    """Return the statistics that each operation needs; `finish` returns those of one pass."""
    tables = tables_of(operations, schema)
    states: list[State | None] = [table or None for table in tables]
    for numbers in passes(operations, schema):
        wanted = statistics_of(operations, schema, numbers)
        finished: dict[int, State] = {}
        for (number, name, _), table in zip(wanted, finish(states, numbers), strict=True):
            finished[number] = {**finished.get(number, tables[number]), name: table}
        for number, state in finished.items():
            states[number] = state
    return tuple({} if state is None else state for state in states)


def passes(operations: Sequence[Operation], schema: pa.Schema) -> list[list[int]]:
    """Return the indices of the operations that each pass over the rows fits.

    An operation is fitted after those that write the columns it reads. Operations without
    statistics are in no pass.
    """
    ready: dict[str, int] = {}  # the first pass that can read each column
    found: list[list[int]] = []
    for number, operation in enumerate(operations):
        written = operation.writes(schema)  # first, since it rejects wrong types
        statistics = operation.statistics(schema)
        gathered = [name for each in statistics.values() for name in each.columns]
        at = max((ready.get(name, 0) for name in (*operation.reads(schema), *gathered)), default=0)
        if statistics:
            while len(found) <= at:
                found.append([])
            found[at].append(number)
            at += 1
        for name in written:
            ready[name] = at
        schema = schema_after(operation, schema)
    return found


def tables_of(operations: Sequence[Operation], schema: pa.Schema) -> list[State]:
    """Return the tables that operations need besides statistics."""
    found: list[State] = []
    for operation in operations:
        found.append(operation.tables(schema))
        schema = schema_after(operation, schema)
    return found


def statistics_of(
    operations: Sequence[Operation], schema: pa.Schema, numbers: Sequence[int]
) -> list[tuple[int, str, Statistic]]:
    """Return the statistics that the operations at `numbers` need, with their number and name."""
    found: list[tuple[int, str, Statistic]] = []
    for number, operation in enumerate(operations):
        if number in numbers:
            found += [(number, name, each) for name, each in operation.statistics(schema).items()]
        schema = schema_after(operation, schema)
    return found


@final
@dataclass(frozen=True)
class FitStage:
    """One pass over the rows: the statistics of some operations, by their number and name.

    `steps` are the bound operations before and between them; None for those not fitted yet.
    """

    wanted: tuple[tuple[int, str, Statistic], ...]
    steps: tuple[Step | None, ...]

    @classmethod
    def of(
        cls,
        operations: Sequence[Operation],
        schema: pa.Schema,
        states: Sequence[State | None],
        numbers: Sequence[int],
    ) -> "FitStage":
        """Return the pass that fits the operations at `numbers`."""
        wanted = statistics_of(operations, schema, numbers)
        steps: list[Step | None] = []
        unknown: set[str] = set()  # columns written by operations that are not fitted yet
        for operation, state in zip(operations[: max(numbers)], states, strict=False):
            state = state or {}
            fitted = operation.statistics(schema).keys() <= state.keys()
            known = fitted and unknown.isdisjoint(operation.reads(schema))
            steps.append(operation.bind(schema, state) if known else None)
            written = operation.writes(schema).keys()
            unknown = unknown - written if known else unknown | written
            schema = schema_after(operation, schema, state if known else None)
        return cls(tuple(wanted), tuple(steps))

    def gather(self, rows: Iterable[Rows], folder: Path, limit: int) -> list[Gathering]:
        """Gather each statistic from rows; write what exceeds `limit` bytes to the folder."""
        gatherings = [
            Gathering(statistic, folder, f"{index:04}")
            for index, (_, _, statistic) in enumerate(self.wanted)
        ]
        for arrays, place in rows:
            for index in range(len(self.steps) + 1):
                for (number, _, _), gathering in zip(self.wanted, gatherings, strict=True):
                    if number == index:
                        gathering.accumulator.add(arrays, place.shard)
                if index < len(self.steps) and (step := self.steps[index]) is not None:
                    arrays = arrays | step(arrays, place)
            _spill(gatherings, limit)
        return gatherings


def _spill(gatherings: Sequence[Gathering], limit: int) -> None:
    """Write the largest to files until all together hold at most `limit` bytes."""
    while sum(each.accumulator.nbytes for each in gatherings) > limit:
        largest = max(gatherings, key=lambda each: each.accumulator.nbytes)
        if not largest.spill():
            return


def _all_rows(source: StreamedSource, on_rows: Callable[[int], None]) -> Iterator[Rows]:
    """Return all rows of a source, counted as they are read; raise an error if there are none."""
    found = False
    for number, shard in enumerate(source.shards()):
        first = 0
        for batch in source.read(shard, source.schema.names):
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield dict(columns), TrainingRows(number, first)
            first += batch.num_rows
            on_rows(batch.num_rows)
        found = found or first > 0
    if not found:
        raise DataError("there are no training rows to fit the pipeline on")
