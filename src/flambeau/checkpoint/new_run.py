"""Choice of a run directory that no other run uses."""

import datetime
from pathlib import Path

from flambeau.checkpoint.run_directory import RunDirectory, explained


def claim_directory(path: Path) -> Path:
    """Create the directory, or the first of `path-2`, `path-3`, ... that does not exist; return it.

    Creating the directory claims it: two callers never get the same one, even in processes that
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
    """Claim a directory in `runs/`, of the name and the time, for a run without a `run_dir`."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return RunDirectory(claim_directory(Path("runs") / f"{name}-{now}"))
