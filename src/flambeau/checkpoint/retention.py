"""Retention: which checkpoints are kept.

These are the last ones, the best one, those being read, and those that they depend on.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flambeau.checkpoint.durable import write_atomically
from flambeau.checkpoint.manifest import MANIFEST, Manifest
from flambeau.checkpoint.references import (
    best,
    checkpoint_path,
    checkpoints,
    is_committed,
    latest,
    step_directories,
)
from flambeau.checkpoint.run_directory import RunDirectory
from flambeau.errors import CheckpointError

#: Leases that a job holds for its own roles: for the evaluator, and for roles that start.
HELD = "lease-evaluator.json"
START = "lease-start.json"


def prune(run: RunDirectory, keep: int) -> list[Path]:
    """Remove surplus and uncommitted checkpoints; return those that were removed.

    Only the job that uses the run directory may call it: while a checkpoint is being written, it
    has no manifest either.
    """
    removed = remove_surplus(run, keep)
    unfinished = [path for path in step_directories(run) if not (path / MANIFEST).exists()]
    for path in unfinished:
        remove_checkpoint(path)
    return removed + unfinished


def remove_surplus(run: RunDirectory, keep: int) -> list[Path]:
    """Remove all but the last `keep` (at least one) checkpoints; return the removed ones.

    The best one, the one written last and leased ones are kept as well, and those that hold table
    rows of one that is kept.
    """
    committed = checkpoints(run)
    wanted = {*committed[-max(keep, 1) :], *_pointed_at(run)}
    kept = [path for path in committed if path in wanted or is_leased(path)]
    bases = {name for path in kept for name in Manifest.read(path).bases}
    removed = [path for path in committed if path not in kept and path.name not in bases]
    # Newest first: after a crash, no checkpoint must remain whose base is gone.
    for path in reversed(removed):
        remove_checkpoint(path)
    return removed


def remove_checkpoint(path: Path) -> None:
    """Uncommit a checkpoint, then remove its files; do nothing if it does not exist."""
    (path / MANIFEST).unlink(missing_ok=True)
    # No longer visible from here on; the next `prune` removes files that cannot be removed now.
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def lease(path: Path, seconds: float = 600) -> Iterator[Path]:
    """Protect a checkpoint from being pruned while it is read, for at most `seconds`."""
    name = f"lease-{os.getpid()}-{secrets.token_hex(4)}.json"
    hold(path, name, seconds)
    try:
        # Removal may have begun before the lease was visible.
        if not is_committed(path):
            raise CheckpointError(f"{path} is being removed")
        yield path
    finally:
        release(path, name)


def hold(path: Path, name: str = HELD, seconds: float = 3600) -> None:
    """Lease a checkpoint for a role that will read it, before the role can do so itself."""
    try:
        _write_lease(path / name, seconds)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is no longer there") from None


def release(path: Path, name: str = HELD) -> None:
    """End a lease made by `hold`; do nothing if there is none."""
    (path / name).unlink(missing_ok=True)


def _write_lease(file: Path, seconds: float) -> None:
    write_atomically(file, json.dumps({"expires": time.time() + seconds}).encode())


def is_leased(path: Path) -> bool:
    """Return whether the checkpoint has a lease that has not expired."""
    return any(_expiry(file) > time.time() for file in path.glob("lease-*.json"))


def _expiry(file: Path) -> float:
    """Return when a lease expires: 0 if it was just released or is damaged."""
    try:
        return float(json.loads(file.read_bytes())["expires"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return 0.0


def _pointed_at(run: RunDirectory) -> list[Path]:
    pointers = [best(run), latest(run)]
    return [checkpoint_path(run, pointer["step"]) for pointer in pointers if pointer]
