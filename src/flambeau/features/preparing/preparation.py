"""The work of a preparation, in pieces that any process can do: gather, finish, transform.

Statistics are gathered from parts of the rows into files, and each is finished from its files; then
parts of the rows are transformed into files of features. A piece depends only on the `Preparation`
and on files in its folders, and writes its own files atomically: pieces can be repeated, and done
in any order and by any process.
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, final

from flambeau.checkpoint.durable import write_atomically
from flambeau.coordination.payloads import Part
from flambeau.data.source import StreamedSource
from flambeau.features.bound_pipeline import BoundPipeline
from flambeau.features.fitting import FitStage, passes, statistics_of, tables_of
from flambeau.features.operation import Operation, State
from flambeau.features.preparing.part_rows import OnRows, PartRows
from flambeau.features.preparing.subset_file import SubsetFile
from flambeau.features.splits import SUBSETS, TRAIN, Assign, Split
from flambeau.features.statistics.partial_tables import PartialTables
from flambeau.features.statistics.statistic import Statistic, Workspace
from flambeau.features.stored_state import StoredState, write_pieces
from flambeau.features.summaries.part_summary import PartSummary
from flambeau.features.summaries.summary_plan import SummaryPlan

#: Limit on the pieces in which statistics are gathered: each has files of its own.
GATHERED = 128


@dataclass(frozen=True)
class Step:
    """A step of the work, all of whose pieces must be done before the next one begins."""

    kind: Literal["gather", "finish", "transform"]
    stage: int
    pieces: int


@final
@dataclass(frozen=True)
class Preparation:
    """A preparation: rows, divided into `parts`, and the operations on them.

    Features are written to the folder `out`, and intermediate files to `work`. `memory` is in
    bytes, for the statistics of one process.
    """

    source: StreamedSource
    parts: tuple[Part, ...]
    operations: tuple[Operation, ...]
    split: Split | None
    out: Path
    work: Path
    memory: int

    def steps(self) -> list[Step]:
        """Return the steps in order: two for each pass over the rows, and the transformation."""
        found = []
        for number in range(len(self._passes)):
            found.append(Step("gather", number, len(self._gathered)))
            found.append(Step("finish", number, len(self._statistics(number))))
        return [*found, Step("transform", 0, len(self.parts))]

    def rows_of(self, step: Step, piece: int) -> int:
        """Return the number of rows that a piece of the work reads."""
        if step.kind == "finish":
            return 0
        parts = self._gathered[piece] if step.kind == "gather" else self.parts[piece : piece + 1]
        return sum(part.rows or 0 for part in parts)

    def do(self, step: Step, piece: int, on_rows: OnRows) -> None:
        """Do a piece of the work, and mark it as done."""
        work = {"gather": self._gather, "finish": self._finish, "transform": self._transform}
        result = work[step.kind](step.stage, piece, on_rows)
        write_atomically(self._mark(step, piece), json.dumps(result).encode())

    def is_done(self, step: Step, piece: int) -> bool:
        """Return whether a piece was done before, by this or another process."""
        return self._mark(step, piece).exists()

    def result(self, step: Step, piece: int) -> dict[str, int]:
        """Return the counts of a piece: the rows of each subset of the split."""
        found: dict[str, int] = json.loads(self._mark(step, piece).read_bytes())
        return found

    def states(self) -> tuple[State, ...]:
        """Return the statistics of each operation, once all are finished; they stay in files."""
        return tuple(state or {} for state in self._states(len(self._passes))[1])

    @cached_property
    def summary_plan(self) -> SummaryPlan:
        """The plan of summaries, available once the statistics of operations are finished."""
        rows = sum(part.rows or 0 for part in self.parts)
        return SummaryPlan.of(self.operations, self.states(), self.source.schema, rows)

    def summary_file(self, piece: int) -> Path:
        """Return the file with the summaries of a part, which exists once it is transformed."""
        return self.work / f"summary-{piece:06}.arrow"

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def _mark(self, step: Step, piece: int) -> Path:
        return self.work / f"{step.kind}-{step.stage}-{piece:06}.done"

    @cached_property
    def _gathered(self) -> list[tuple[Part, ...]]:
        """The groups of parts that are gathered together: their common values are stored once."""
        size = -(-len(self.parts) // GATHERED)
        return [self.parts[first : first + size] for first in range(0, len(self.parts), size)]

    # The numbers of the operations that each pass fits; None for a split's pass, which is first.

    @cached_property
    def _passes(self) -> list[list[int] | None]:
        split = self.split is not None and self.split.statistics(self.source.schema)
        return [*([None] if split else []), *passes(self.operations, self.source.schema)]

    def _statistics(self, stage: int) -> list[tuple[int, str, Statistic]]:
        numbers = self._passes[stage]
        if numbers is not None:
            return statistics_of(self.operations, self.source.schema, numbers)
        assert self.split is not None
        return [(0, name, each) for name, each in self.split.statistics(self.source.schema).items()]

    def _stage(self, number: int) -> tuple[FitStage, PartRows]:
        """Return a pass, and a reader of its rows: only training rows, once the split is known."""
        if number not in self._stages:
            self._stages.clear()  # a pass is done before the next one begins
            self._stages[number] = self._new_stage(number)
        return self._stages[number]

    @cached_property
    def _stages(self) -> dict[int, tuple[FitStage, PartRows]]:
        return {}

    def _new_stage(self, number: int) -> tuple[FitStage, PartRows]:
        numbers = self._passes[number]
        if numbers is None:
            return FitStage(tuple(self._statistics(number)), ()), self._part_rows(None)
        split, states = self._states(number)
        stage = FitStage.of(self.operations, self.source.schema, states, numbers)
        return stage, self._part_rows(self._assign(split))

    @cached_property
    def _bound(self) -> tuple[BoundPipeline, PartRows]:
        """The fitted pipeline, and a reader of the rows for it."""
        self._stages.clear()
        split, states = self._states(len(self._passes))
        bound = BoundPipeline(self.operations, [s or {} for s in states], self.source.schema)
        return bound, self._part_rows(self._assign(split))

    def _part_rows(self, assign: Assign | None) -> PartRows:
        by_shard = any(operation.out_of_fold for operation in self.operations)
        return PartRows(self.source, assign, by_shard)

    def _assign(self, state: State) -> Assign | None:
        return None if self.split is None else self.split.bind(self.source.shards(), state)

    def _states(self, before: int) -> tuple[State, list[State | None]]:
        """Return the statistics of the split and each operation, from the first `before` passes."""
        files: dict[int | None, dict[str, Path]] = {}
        for stage, numbers in enumerate(self._passes[:before]):
            for index, (number, name, _) in enumerate(self._statistics(stage)):
                owner = None if numbers is None else number
                files.setdefault(owner, {})[name] = self._state_file(stage, index)
        tables = tables_of(self.operations, self.source.schema)
        states = [StoredState(files.get(number, {}), each) for number, each in enumerate(tables)]
        return StoredState(files.get(None, {})), [state or None for state in states]

    def _state_file(self, stage: int, index: int) -> Path:
        return self.work / f"state-{stage}-{index:04}.parquet"

    def _gather(self, stage: int, piece: int, on_rows: OnRows) -> dict[str, int]:
        """Gather all statistics of a pass from some parts of the rows."""
        wanted, reader = self._stage(stage)
        folder = self.work / f"gathered-{stage}-{piece:06}"
        shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
        folder.mkdir()
        rows = (
            (dict(zip(records.schema.names, records.columns, strict=True)), place)
            for part in self._gathered[piece]
            for _, records, place in reader.read(part, [TRAIN], on_rows)
        )
        for gathering in wanted.gather(rows, folder, self.memory):
            gathering.spill()
        return {}

    def _finish(self, stage: int, piece: int, on_rows: OnRows) -> dict[str, int]:
        """Finish one statistic from the files gathered from all parts."""
        _, _, statistic = self._statistics(stage)[piece]
        folders = [self.work / f"gathered-{stage}-{n:06}" for n in range(len(self._gathered))]
        files = [path for folder in folders for path in sorted(folder.glob(f"{piece:04}-*"))]
        target = self._state_file(stage, piece)
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        with tempfile.TemporaryDirectory(prefix="finish-", dir=self.work) as folder:
            space = Workspace(Path(folder), self.memory)
            pieces = statistic.stream(PartialTables(files), space)
            first = next(pieces)
            write_pieces(chain([first], pieces), first.schema, partial)
        partial.replace(target)
        return {}

    def _transform(self, stage: int, piece: int, on_rows: OnRows) -> dict[str, int]:
        """Write the features of a part of the rows, in a file for each subset of the split."""
        bound, reader = self._bound
        part, files = self.parts[piece], {}
        subsets = range(len(SUBSETS))
        summary = PartSummary(self.summary_plan, piece)
        for subset, records, place in reader.read(part, subsets, on_rows):
            if subset not in files:
                target = self.out / SUBSETS[subset] / part.file_name
                files[subset] = SubsetFile(target, piece if subset == TRAIN else None)
            features = bound(records, place if subset == TRAIN else None)
            summary.add(SUBSETS[subset], records, features)
            files[subset].add(features)
        summary.write(self.summary_file(piece))
        for file in files.values():
            file.close()
        return {SUBSETS[subset]: file.rows for subset, file in files.items()}
