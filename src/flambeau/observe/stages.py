"""The stages of work such as the preparation of features: their progress, time and memory.

A stage is done in pieces, perhaps by several processes. Its rows, if any, are counted as they are
read.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, final

from flambeau.observe.event import Event, Observer

#: Seconds between two reports of one stage.
REPORT_SECONDS = 0.2


@final
@dataclass(frozen=True)
class StageRecord:
    """The time and memory of a stage: `peak_bytes` is the sum of its processes' peak memory.

    This is resident memory: pages that processes share count for each of them.
    """

    stage: str
    rows: int
    seconds: float
    peak_bytes: int

    @property
    def rows_per_second(self) -> float | None:
        """Rows read per second; None for a stage that reads none."""
        return rate(self.rows, self.seconds)

    def dump(self) -> dict[str, Any]:
        """Return the record as plain values, with rows per second."""
        return {**asdict(self), "rows_per_second": self.rows_per_second}


def rate(rows: int, seconds: float) -> float | None:
    """Return rows per second; None without rows or time."""
    return rows / seconds if rows and seconds > 0 else None


@final
class Stage:
    """A stage in progress: the caller reports rows, pieces and memory."""

    def __init__(self, report: "Stages", title: str, rows: int, pieces: int) -> None:
        self._report, self.title = report, title
        self.rows_total, self.pieces_total = rows, pieces
        self.rows = self.pieces = 0
        self._peaks: dict[str, int] = {}
        self._began = self._reported = report.clock()
        self._first: tuple[float, int] | None = None

    def add_rows(self, rows: int) -> None:
        """Count rows that have been read."""
        self.rows += rows
        self._first = self._first or (self._report.clock(), rows)
        self._tell()

    def piece_done(self) -> None:
        """Count a piece that is complete."""
        self.pieces += 1
        self._tell()

    def note_memory(self, process: str, peak_bytes: int) -> None:
        """Record the peak memory of a process."""
        self._peaks[process] = max(peak_bytes, self._peaks.get(process, 0))

    @property
    def record(self) -> StageRecord:
        """The stage's time and memory so far."""
        seconds = self._report.clock() - self._began
        return StageRecord(self.title, self.rows, seconds, sum(self._peaks.values()))

    @property
    def speed(self) -> float | None:
        """Rows per second since the first report: processes take seconds to start."""
        if self._first is None:
            return None
        since, before = self._first
        return rate(self.rows - before, self._report.clock() - since)

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining time; None if it is not known yet."""
        if self.rows_total:
            speed = self.speed
            return None if speed is None else max(0, self.rows_total - self.rows) / speed
        if not self.pieces:
            return None
        return self.record.seconds * (self.pieces_total - self.pieces) / self.pieces

    def _tell(self) -> None:
        now = self._report.clock()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self._report.progress(self)


@final
class Stages:
    """A reporter of stages, one after the other, to an observer.

    Work that takes less than `quiet_seconds` is not reported at all. `clock` returns seconds.
    """

    def __init__(
        self,
        observer: Observer,
        count: int,
        *,
        quiet_seconds: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._observer, self._count, self.clock = observer, count, clock
        self._speaks_at = clock() + quiet_seconds
        self._number = 0
        self._announced = False

    @contextmanager
    def stage(self, title: str, rows: int, pieces: int, *, number: int) -> Iterator[Stage]:
        """Report a stage, numbered from 1, that reads `rows` rows (0: none) in `pieces` pieces."""
        self._number, self._announced = number, False
        stage = Stage(self, title, rows, pieces)
        self._announce(stage)
        yield stage
        if self._announced:
            record = stage.record.dump()
            del record["stage"]
            self._emit("stage_end", stage, record)

    def progress(self, stage: Stage) -> None:
        """Report the progress of a stage."""
        self._announce(stage)
        if not self._announced:
            return
        fields = {
            "rows": stage.rows,
            "rows_total": stage.rows_total,
            "pieces": stage.pieces,
            "pieces_total": stage.pieces_total,
            "rows_per_second": stage.speed,
            "seconds_left": stage.seconds_left,
        }
        self._emit("stage", stage, fields)

    def _announce(self, stage: Stage) -> None:
        if not self._announced and self.clock() >= self._speaks_at:
            self._announced = True
            totals = {"rows_total": stage.rows_total, "pieces_total": stage.pieces_total}
            self._emit("stage_start", stage, totals)

    def _emit(self, kind: str, stage: Stage, fields: dict[str, Any]) -> None:
        place = {"stage": stage.title, "number": self._number, "stages": self._count}
        self._observer.observe(Event(kind, self.clock(), {**place, **fields}))
