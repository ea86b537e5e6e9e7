"""Explanations of operating system errors that tell the user what to change."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OF_THE_MACHINE = {
    errno.ENOSPC: "no space is left on the disk; free some, or {elsewhere}",
    errno.EDQUOT: "the disk quota is used up; free some space, or {elsewhere}",
    errno.EROFS: "the file system is read-only; {elsewhere}",
    errno.EFBIG: "the file is larger than a limit allows; raise it (ulimit -f), or {elsewhere}",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENOMEM: "out of memory; use fewer workers, a smaller batch_size or a larger machine",
}
_OF_A_FILE = {
    errno.EACCES: "no permission to read or write there; change its permissions, or {elsewhere}",
    errno.EPERM: "no permission to read or write there; change its permissions, or {elsewhere}",
    errno.EEXIST: "a file is in its place; {elsewhere}",
    errno.ENOTDIR: "a file is in its place; {elsewhere}",
    errno.EISDIR: "a folder is in the place of a file; {elsewhere}",
}


def machine_reason(number: int | None, elsewhere: str = "use another disk") -> str | None:
    """Return the cause and what to change; None if the error does not concern the machine.

    `elsewhere` is advice on how to choose another place for the file.
    """
    reason = _OF_THE_MACHINE.get(number or 0)
    return None if reason is None else reason.format(elsewhere=elsewhere)


def file_reason(number: int | None, elsewhere: str = "use another place") -> str | None:
    """Return the same as `machine_reason`, and also explain errors that concern one file."""
    reason = _OF_A_FILE.get(number or 0)
    return (
        machine_reason(number, elsewhere) if reason is None else reason.format(elsewhere=elsewhere)
    )


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Set `path` as the file name of operating system errors that have none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def require_writable(path: Path) -> None:
    """Raise the `OSError` that writing to `path` later would raise; its folder need not exist."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
