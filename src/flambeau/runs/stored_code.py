"""Checks of code in a run directory, before a command or a predictor runs it."""

import grp
import logging
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef, JobSettings
from flambeau.errors import UntrustedError

_OWN = "flambeau."


def allow_code(run: RunDirectory, settings: JobSettings, *, trust: bool = False) -> None:
    """Warn that code stored in the run will be executed, unless there is none.

    Raise `UntrustedError` if other users can replace the run's code, except with `trust`.
    """
    refs = [ref for ref in _refs(settings) if ref.value or not (ref.path or "").startswith(_OWN)]
    if refs and not trust:
        _require_private(run)
    values = sorted({unquote(Path(ref.value).stem) for ref in refs if ref.value})
    if values:
        # Shown on stderr, unless the program has configured its logging differently.
        logging.getLogger("flambeau").warning(
            f"{run.path} holds code by value, which runs now with your rights: {', '.join(values)}"
        )


def _refs(value: Any) -> Iterator[CodeRef]:
    """Yield all references to code in the settings."""
    if isinstance(value, CodeRef):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _refs(item)
    elif hasattr(type(value), "model_fields"):
        for name in type(value).model_fields:
            yield from _refs(getattr(value, name))


def _require_private(run: RunDirectory) -> None:
    stored = sorted(run.code.iterdir()) if run.code.is_dir() else []
    for place in (run.path, run.job_file, run.code, *stored):
        if place.exists() and _others_write(place):
            raise UntrustedError(
                f"{place} can be written by other users, and the run's code would run with your "
                f"rights. If its content is unchanged, run: chmod -R go-w {run.path}"
            )


def _others_write(place: Path) -> bool:
    found = place.stat()
    # In a sticky folder, such as /tmp, users may add files but replace only their own.
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & stat.S_IWOTH and not sticky:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_uid, found.st_gid)


def _is_own_group(user: int, group: int) -> bool:
    """Return whether a group is its user's private one, which many systems create."""
    try:
        known = grp.getgrgid(group)
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        return user == group
    return known.gr_name == name and set(known.gr_mem) <= {name}
