"""The cost of the stages of a preparation, kept in a file across interruptions."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import final

from flambeau.checkpoint.durable import write_atomically
from flambeau.observe.stages import StageRecord, rate


@final
class StageRecords:
    """The records of stages by title, in a file; the cost of a stage in several calls adds up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_bytes()) if path.exists() else []
        self._records = {each["stage"]: StageRecord(**each) for each in found}

    def add(self, record: StageRecord) -> None:
        """Add the cost of a stage in this call."""
        before = self._records.get(record.stage)
        if before is not None:
            record = replace(
                before,
                rows=before.rows + record.rows,
                seconds=before.seconds + record.seconds,
                peak_bytes=max(before.peak_bytes, record.peak_bytes),
            )
        self._records[record.stage] = record
        values = [asdict(each) for each in self._records.values()]
        write_atomically(self._path, json.dumps(values).encode())

    def all(self) -> tuple[StageRecord, ...]:
        """Return the records in the order of the stages."""
        return tuple(self._records.values())


def summary_of(stages: Sequence[StageRecord], rows: int) -> dict[str, float | int | None]:
    """Return the cost of all stages: seconds, rows per second, and the peak memory of any stage."""
    seconds = sum(stage.seconds for stage in stages)
    return {
        "seconds": seconds,
        "rows_per_second": rate(rows, seconds),
        "peak_bytes": max((stage.peak_bytes for stage in stages), default=0),
    }
