"""Which files a path, a glob, a directory or a list of them stands for."""

import glob
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from flambeau.errors import DataError

Paths = str | Sequence[str]


def find_files(path: Paths, suffixes: Sequence[str] = ()) -> list[str]:
    """The files meant by `path`, none of them empty.

    A directory stands for all files below it that end in one of `suffixes`, a glob for its
    matches; both in sorted order, without names that start with `_` or `.` (`_SUCCESS`).
    """
    patterns = [path] if isinstance(path, str) else list(path)
    if not patterns:
        raise DataError("the list of data files is empty")
    files = [file for pattern in patterns for file in _expand(pattern, suffixes)]
    for file in files:
        require_content(file)
    return files


def require_content(path: str) -> None:
    """Raise `DataError` when the file is missing or has no bytes."""
    try:
        size = os.path.getsize(path)
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}{_looked_in(path)}") from error
    if size == 0:
        raise DataError(f"{path} is empty (0 bytes)")


@contextmanager
def reading(path: str, kind: str) -> Iterator[None]:
    """Turn what Arrow and the file system raise into a `DataError` that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as {kind}: {error}") from error


def _expand(pattern: str, suffixes: Sequence[str]) -> list[str]:
    pattern = os.path.expanduser(pattern)
    if os.path.isdir(pattern):
        return _below(pattern, suffixes)
    if os.path.exists(pattern):
        return [pattern]
    matches = [name for name in sorted(glob.glob(pattern, recursive=True)) if _is_data(Path(name))]
    if not matches:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise DataError(f"{what} {pattern!r}{_looked_in(pattern)}")
    return [file for match in matches for file in _expand(match, suffixes)]


def _below(directory: str, suffixes: Sequence[str]) -> list[str]:
    files = sorted(
        str(file)
        for file in Path(directory).rglob("*")
        if file.is_file() and _is_data(file) and file.name.lower().endswith(tuple(suffixes))
    )
    if not files:
        raise DataError(f"directory {directory!r} holds no files {' or '.join(suffixes)}")
    return files


def _is_data(path: Path) -> bool:
    return not path.name.startswith(("_", "."))


def _looked_in(path: str) -> str:
    return "" if os.path.isabs(path) else f" (relative to {os.getcwd()})"
