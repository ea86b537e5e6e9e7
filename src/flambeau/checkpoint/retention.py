"""Which checkpoints stay: the last ones, the best one, those being read, and what these need."""

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

#: Leases of a job on behalf of its own roles: of the evaluator, and of those that start.
HELD = "lease-evaluator.json"
START = "lease-start.json"


def prune(run: RunDirectory, keep: int) -> list[Path]:
    """Remove surplus checkpoints, and what a crash left without a manifest; return what is removed.

    For the job that uses the run directory: another one's new checkpoint has no manifest yet.
    """
    removed = remove_surplus(run, keep)
    unfinished = [path for path in step_directories(run) if not (path / MANIFEST).exists()]
    for path in unfinished:
        remove_checkpoint(path)
    return removed + unfinished


def remove_surplus(run: RunDirectory, keep: int) -> list[Path]:
    """Remove all but the last `keep` (at least one) checkpoints; return those that are removed.

    The best, the one written last and leased ones stay, too, and those that hold rows of tables of
    one that stays.
    """
    committed = checkpoints(run)
    wanted = {*committed[-max(keep, 1) :], *_pointed_at(run)}
    kept = [path for path in committed if path in wanted or is_leased(path)]
    bases = {name for path in kept for name in Manifest.read(path).bases}
    removed = [path for path in committed if path not in kept and path.name not in bases]
    # The newest first: a crash must not leave one whose base is gone.
    for path in reversed(removed):
        remove_checkpoint(path)
    return removed


def remove_checkpoint(path: Path) -> None:
    """Uncommit a checkpoint, then remove its files; nothing happens if it is not there."""
    (path / MANIFEST).unlink(missing_ok=True)
    # Not seen by anybody from here on: what cannot be removed now goes at the next `prune`.
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def lease(path: Path, seconds: float = 600) -> Iterator[Path]:
    """Keep a checkpoint from being pruned while it is read, for at most `seconds`."""
    name = f"lease-{os.getpid()}-{secrets.token_hex(4)}.json"
    hold(path, name, seconds)
    try:
        # Removal may have begun before the lease was seen.
        if not is_committed(path):
            raise CheckpointError(f"{path} is being removed")
        yield path
    finally:
        release(path, name)


def hold(path: Path, name: str = HELD, seconds: float = 3600) -> None:
    """Lease a checkpoint on behalf of a role that will read it, before it can do so itself."""
    try:
        _write_lease(path / name, seconds)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is no longer there") from None


def release(path: Path, name: str = HELD) -> None:
    """End such a lease; nothing happens if there is none."""
    (path / name).unlink(missing_ok=True)


def _write_lease(file: Path, seconds: float) -> None:
    write_atomically(file, json.dumps({"expires": time.time() + seconds}).encode())


def is_leased(path: Path) -> bool:
    """Whether somebody reads the checkpoint under a lease that has not expired."""
    return any(_expiry(file) > time.time() for file in path.glob("lease-*.json"))


def _expiry(file: Path) -> float:
    """When a lease ends; one that was just released, or is damaged, has ended."""
    try:
        return float(json.loads(file.read_bytes())["expires"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return 0.0


def _pointed_at(run: RunDirectory) -> list[Path]:
    pointers = [best(run), latest(run)]
    return [checkpoint_path(run, pointer["step"]) for pointer in pointers if pointer]
