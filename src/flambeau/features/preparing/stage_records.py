"""What the stages of a preparation took, kept in a file while it is interrupted and resumed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import final

from flambeau.checkpoint.durable import write_atomically
from flambeau.observe.stages import StageRecord, rate


@final
class StageRecords:
    """The records of stages by title, in a file; what a stage took in several calls adds up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_bytes()) if path.exists() else []
        self._records = {each["stage"]: StageRecord(**each) for each in found}

    def add(self, record: StageRecord) -> None:
        """Add what a stage has taken in this call."""
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
    """Return what all stages took: seconds, rows per second, and the largest memory of one."""
    seconds = sum(stage.seconds for stage in stages)
    return {
        "seconds": seconds,
        "rows_per_second": rate(rows, seconds),
        "peak_bytes": max((stage.peak_bytes for stage in stages), default=0),
    }
