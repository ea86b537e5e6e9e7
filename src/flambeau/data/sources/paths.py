"""Files that a path, a glob, a directory or a list of them refers to."""

import glob
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from flambeau.data.sources.files import compression_of, open_stream, size_of
from flambeau.data.sources.listing import files_at
from flambeau.data.sources.urls import is_url, local_path, shown
from flambeau.errors import DataError

Paths = str | Sequence[str]
#: A compressed file without content has at most this many bytes: a header, perhaps with its name.
_PACKED_NOTHING = 512


def find_files(path: Paths, suffixes: Sequence[str] = (), *, skip_empty: bool = False) -> list[str]:
    """Return the files meant by `path`, none of them empty; each may be local or a URL.

    An empty file is an error, or with `skip_empty` left out with a warning.

    A directory stands for all files below it that end in one of `suffixes`, a glob for its matches;
    both in sorted order, without names that start with `_` or `.` (`_SUCCESS`).
    """
    files = named_files(path, suffixes)
    if skip_empty:
        files = [(file, size) for file, size in files if _has_content(file, size)]
    for file, size in files:
        require_content(file, size)
    if not files:
        first = path if isinstance(path, str) else path[0]
        raise DataError(f"all files of {shown(first)} are empty")
    return [file for file, _ in files]


def named_files(path: Paths, suffixes: Sequence[str] = ()) -> list[tuple[str, int | None]]:
    """Return the files meant by `path`, including empty ones, with their sizes if known."""
    patterns = [path] if isinstance(path, str) else list(path)
    if not patterns:
        raise DataError("the list of data files is empty")
    return [file for pattern in patterns for file in _expand(pattern, suffixes)]


def _has_content(path: str, size: int | None) -> bool:
    """Return whether a file is not empty, and warn if it is empty."""
    if size is None:
        size = os.stat(path).st_size if os.path.exists(path) else None
    empty = size is not None and _is_empty(path, size)
    if empty:
        warnings.warn(f"{shown(path)} is empty, and left out", stacklevel=3)
    return not empty


def require_content(path: str, size: int | None = None) -> None:
    """Raise `DataError` if the file is missing or empty; `size` is its size, if known."""
    try:
        size = size_of(path) if size is None else size
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}{_looked_in(path)}") from error
    if _is_empty(path, size):
        raise DataError(f"{shown(path)} is empty (0 bytes)")


def _is_empty(path: str, size: int) -> bool:
    """Return whether a file has no content; a small compressed one is unpacked to find out."""
    if size == 0 or size > _PACKED_NOTHING or compression_of(path) is None:
        return size == 0
    try:
        with open_stream(path) as stream:
            return not stream.read(1)
    except (pa.ArrowException, OSError):
        return False  # it is damaged, which its reader reports with the format


def require_not_packed(paths: Sequence[str], kind: str) -> None:
    """Raise `DataError` if a file of a format that needs random access is compressed."""
    for path in paths:
        if compression_of(path) is not None:
            raise DataError(
                f"{shown(path)} cannot be read as {kind}: it is compressed as a whole; unpack it "
                f"({kind} has compression of its own)"
            )


@contextmanager
def reading(path: str, kind: str) -> Iterator[None]:
    """Turn errors of Arrow and the file system into a `DataError` that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{shown(path)} cannot be read as {kind}: {error}") from error


def _expand(pattern: str, suffixes: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return the files with their sizes, if these are already known."""
    if is_url(pattern):
        return files_at(pattern, suffixes)
    return [(file, None) for file in _local(os.path.expanduser(local_path(pattern)), suffixes)]


def _local(pattern: str, suffixes: Sequence[str]) -> list[str]:
    if os.path.isdir(pattern):
        return _below(pattern, suffixes)
    if os.path.exists(pattern):
        return [pattern]
    matches = [name for name in sorted(glob.glob(pattern, recursive=True)) if _is_data(Path(name))]
    if not matches:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise DataError(f"{what} {pattern!r}{_looked_in(pattern)}{_lost_slash(pattern)}")
    return [file for match in matches for file in _local(match, suffixes)]


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


def _lost_slash(path: str) -> str:
    was_url = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]", path)
    return "; a URL in a Path loses a slash: give it as text" if was_url else ""


def _looked_in(path: str) -> str:
    return "" if os.path.isabs(path) else f" (relative to {os.getcwd()})"
