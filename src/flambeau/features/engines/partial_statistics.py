"""Statistics of engine data: gathered by its tasks, merged and finished in this process."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from flambeau.errors import DataError
from flambeau.features.engines.engine_frame import EngineFrame
from flambeau.features.engines.engine_work import PARTIALS, GatherStatistics
from flambeau.features.fitting import fit_by_passes, memory_bytes, statistics_of
from flambeau.features.operation import Operation, State
from flambeau.features.statistics.partial_files import finish_files

#: Default bytes for the statistics of one task: several tasks share a machine.
TASK_MEMORY = 256 << 20
#: Number of parts in which files are received, one after the other.
PARTS = 8


def fit_frame(
    operations: Sequence[Operation], frame: EngineFrame, memory: int | str | None = None
) -> tuple[State, ...]:
    """Return the statistics that each operation needs, from all rows of engine data.

    They do not depend on the order of rows; operations with statistics that do are rejected.
    """
    require_no_order(operations, frame)
    limit = memory_bytes(memory)
    of_task = TASK_MEMORY if memory is None else limit

    def finish(states: Sequence[State | None], numbers: Sequence[int]) -> list[pa.Table]:
        work = GatherStatistics(operations, frame.schema, states, numbers, of_task)
        with tempfile.TemporaryDirectory(prefix="flambeau-fit-") as folder:
            files = _received(frame, work, Path(folder))
            return [
                finish_files(statistic, files[number], limit)
                for number, (_, _, statistic) in enumerate(
                    statistics_of(operations, frame.schema, numbers)
                )
            ]

    return fit_by_passes(operations, frame.schema, finish)


def _received(frame: EngineFrame, work: GatherStatistics, folder: Path) -> dict[int, list[Path]]:
    """Gather statistics in tasks; return the files of each statistic, copied to `folder`."""
    found: dict[int, set[Path]] = {}
    for row in frame.run(work, PARTIALS, "file", PARTS):
        path = folder / row["file"]
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(row["offset"])
            file.write(row["data"])
        found.setdefault(row["statistic"], set()).add(path)
    if not found:
        raise DataError("there are no training rows to fit the pipeline on")
    return {number: sorted(paths) for number, paths in found.items()}


def require_no_order(operations: Sequence[Operation], frame: EngineFrame) -> None:
    """Reject operations whose statistics depend on the order of rows."""
    everything = range(len(operations))
    for number, _, statistic in statistics_of(operations, frame.schema, everything):
        if statistic.ordered:
            raise DataError(
                f"{operations[number]}: it depends on the order of rows, and those of "
                f"{frame.name} have none. Write them to files first ({frame.writes}), and give "
                "the path of these"
            )
