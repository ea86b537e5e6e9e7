"""The report on a prepared folder: a page with a picture of each column."""

import os
from pathlib import Path

from flambeau.checkpoint.durable import write_atomically
from flambeau.features.summaries.page import page
from flambeau.features.summaries.statistics_file import read_statistics

REPORT = "report.html"


def write_report(
    folder: str | os.PathLike[str], target: str | os.PathLike[str] | None = None
) -> Path:
    """Write the report on a prepared folder, in it unless `target` is given; return its path."""
    place = Path(folder)
    path = place / REPORT if target is None else Path(target)
    text = page(read_statistics(place), f"Features in {place.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode("utf-8", "xmlcharrefreplace"))
    return path
