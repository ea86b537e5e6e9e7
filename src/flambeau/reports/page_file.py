"""The page of one or more runs as a file."""

from collections.abc import Sequence
from pathlib import Path

from flambeau.checkpoint.durable import write_atomically
from flambeau.reports.run_page import run_page
from flambeau.reports.run_view import open_run


def write_page(runs: Sequence[Path], out: Path) -> Path:
    """Write the page of a run, or of several that are compared; return its path."""
    text = run_page([open_run(path) for path in runs])
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode("utf-8", "xmlcharrefreplace"))
    return out
