"""Directories that no run has used, chosen and claimed at once."""

import datetime
from pathlib import Path

from flambeau.checkpoint.run_directory import RunDirectory, explained


def claim_directory(path: Path) -> Path:
    """Create the directory, or the first of `path-2`, `path-3`, ... that is not there; return it.

    Creating it is the claim: two callers never get the same one, also if they are processes that
    start at the same time.
    """
    candidate, number = path, 1
    with explained(path):
        while True:
            try:
                candidate.mkdir(parents=True)
                return candidate
            except FileExistsError:
                number += 1
                candidate = path.with_name(f"{path.name}-{number}")


def new_run_directory(name: str) -> RunDirectory:
    """Claim a directory in `runs/` for a run without a `run_dir`: its name and the time."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return RunDirectory(claim_directory(Path("runs") / f"{name}-{now}"))
