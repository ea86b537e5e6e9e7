"""Writing of click logs into a folder: a file for each day, and `truth.json`."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flambeau.checkpoint.os_errors import named
from flambeau.data.generated.settings import ClickLog, Format, Task
from flambeau.data.generated.truth import TaskScoring, Truth
from flambeau.errors import DataError

if TYPE_CHECKING:
    from flambeau.data.generated.drawing import DrawnRows
    from flambeau.data.generated.effects import Array

TRUTH = "truth.json"
#: Number of rows in memory at a time. Text is fastest if it fits into the cache of a core.
CHUNK_ROWS: dict[Format, int] = {"tsv": 8_192, "parquet": 131_072}

_OURS = re.compile(r"day_\d+\.(tsv|parquet)|truth\.json")


class DayWriter(Protocol):
    """File to which a day's rows are written."""

    def write(self, first: int, labels: "Array", rows: "DrawnRows") -> None:
        """Append the next rows; `first` is the number of the first of them."""

    def close(self) -> None:
        """Close the file, which is complete."""


def generate_clicks(
    out: str | Path,
    *,
    rows: int = 1_000_000,
    fields: int = 26,
    dense: int = 13,
    ids: int = 10_000_000,
    days: int = 7,
    seed: int = 0,
    format: Format = "tsv",
    labels: Sequence[Task] = ("click",),
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Truth:
    """Write a click log into the folder `out`; return the best scores that a model can reach on it.

    It has a file for each day (`day_0.tsv`, ...) and `truth.json`, which is written last. `ids` is
    the number of different ids on a day, over all fields. With `force`, an existing click log in
    the folder is replaced. `progress` is called with the number of rows after each write.
    """
    log = ClickLog(
        rows=rows,
        fields=fields,
        dense=dense,
        ids=ids,
        days=days,
        seed=seed,
        format=format,
        labels=tuple(labels),
    )
    is_new = not Path(out).exists()
    folder = _prepared(Path(out), force=force)
    try:
        truth = write_log(log, folder, CHUNK_ROWS[format], progress or (lambda rows: None))
        truth.write(folder / TRUTH)
    except BaseException:
        _remove_log(folder)
        if is_new:
            folder.rmdir()
        raise
    return truth


def write_log(
    log: ClickLog, folder: Path, chunk_rows: int, progress: Callable[[int], None]
) -> Truth:
    """Write all days, `chunk_rows` rows at a time, which does not affect the lines of text."""
    from flambeau.data.generated.drawing import draw
    from flambeau.data.generated.outcomes import outcomes, scored_tasks
    from flambeau.data.generated.probabilities import calibrate
    from flambeau.data.generated.world import make_world

    world = make_world(log)
    probabilities = calibrate(world)
    overall, by_day = TaskScoring(scored_tasks(log)), []
    for day in range(log.days):
        scoring = TaskScoring(scored_tasks(log))
        with _writer(log, folder, day) as writer:
            for part in _chunks(log.day_rows(day), chunk_rows):
                drawn = draw(world, day, part.start, len(part))
                result = outcomes(log, probabilities, drawn)
                writer.write(part.start, result.labels, drawn)
                overall.add(result.scored)
                scoring.add(result.scored)
                progress(len(part))
        by_day.append(scoring.scores())
    return Truth(settings=log, overall=overall.scores(), by_day=tuple(by_day))


def _chunks(rows: range, size: int) -> Iterator[range]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


@contextmanager
def _writer(log: ClickLog, folder: Path, day: int) -> Iterator[DayWriter]:
    from flambeau.data.generated.day_files import ParquetDay, TextDay

    path = folder / f"day_{day}.{log.format}"
    with named(path):
        writer = TextDay(path) if log.format == "tsv" else ParquetDay(path, log, day)
        try:
            yield writer
        finally:
            writer.close()


def _prepared(folder: Path, *, force: bool) -> Path:
    """Create an empty folder, or with `force` remove an existing click log from it."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder to write the click log into")
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(path.name for path in folder.iterdir())
    if there and not force:
        raise DataError(
            f"{folder} is not empty: it has {there[0]}; use another folder, "
            "or replace the click log that is in it (--force, in Python force=True)"
        )
    _remove_log(folder)
    return folder


def _remove_log(folder: Path) -> None:
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            path.unlink()
