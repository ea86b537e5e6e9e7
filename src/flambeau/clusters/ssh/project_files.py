"""The files of a project that hosts need: all but those that are generated or machine-specific."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import final

from flambeau.errors import ConfigError, DataError

#: The prefix of files by which hosts detect that they share a folder.
MARKER = ".flambeau-shared-"
#: Names that are excluded at all levels; those with a leading slash only at the top.
EXCLUDED = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "*.pyc",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".ipynb_checkpoints",
    ".tox",
    ".nox",
    ".cache",
    ".DS_Store",
    ".flambeau",
    f"{MARKER}*",
    "node_modules",
    "/runs",
)


@final
@dataclass(frozen=True)
class ProjectFiles:
    """The files, links and folders below `folder`; a folder comes before its contents.

    `paths` are relative; `files` and `bytes` count regular files.
    """

    folder: Path
    paths: tuple[str, ...]
    files: int
    bytes: int


def find_files(folder: Path, exclude: Sequence[str] = ()) -> ProjectFiles:
    """Return the files in a folder that belong to the project.

    Besides EXCLUDED and the patterns in `exclude`, virtual environments and run directories are
    left out. Links are kept as links.
    """
    patterns = (*EXCLUDED, *map(_checked, exclude))
    return _counted(folder, _below(folder, "", patterns))


def all_files(folder: Path) -> ProjectFiles:
    """Return everything in a folder, such as a virtual environment."""
    return _counted(folder, _below(folder, "", (f"{MARKER}*",), everything=True))


def _counted(folder: Path, found: Iterator[tuple[str, os.stat_result]]) -> ProjectFiles:
    paths, files, size = [], 0, 0
    for path, status in found:
        paths.append(path)
        if stat.S_ISREG(status.st_mode):
            files += 1
            size += status.st_size
    return ProjectFiles(folder, tuple(paths), files, size)


def _checked(pattern: str) -> str:
    if not pattern.strip("/") or "/" in pattern.strip("/"):
        raise ConfigError(
            f"--exclude {pattern!r}: give a name or pattern without folders, such as data or "
            "*.bin; with a slash in front, as in /data, it only applies at the top"
        )
    return pattern.rstrip("/")


def _below(
    root: Path, inside: str, patterns: Sequence[str], *, everything: bool = False
) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(root / inside) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{root / inside} cannot be read: {error.strerror}") from error
    for entry in found:
        path = f"{inside}{entry.name}"
        if _is_excluded(entry.name, top=not inside, patterns=patterns):
            continue
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if everything or not _belongs_here(root / path):
                yield path, status
                yield from _below(root, f"{path}/", patterns, everything=everything)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield path, status


def _is_excluded(name: str, *, top: bool, patterns: Sequence[str]) -> bool:
    return any(
        fnmatchcase(name, pattern.lstrip("/")) and (top or not pattern.startswith("/"))
        for pattern in patterns
    )


def _belongs_here(folder: Path) -> bool:
    """Return whether a folder is a virtual environment or a run directory."""
    is_environment = (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()
    is_run = (folder / "job.yaml").is_file() and (folder / "events.jsonl").is_file()
    return is_environment or is_run
