"""Errors of the folder that features are written to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flambeau.checkpoint.os_errors import file_reason, machine_reason
from flambeau.errors import DataError


@contextmanager
def writing_to(out: Path) -> Iterator[None]:
    """Convert operating system errors, such as a full disk, to a `DataError` with the reason."""
    try:
        yield
    except OSError as error:
        reason = file_reason(error.errno, elsewhere="give another folder as out=")
        if reason is None:
            raise
        name = error.filename if isinstance(error.filename, str) else out
        resumes = machine_reason(error.errno) is not None
        again = ". What is complete is kept: run the same command to resume" if resumes else ""
        raise DataError(f"{name}: {reason}{again}") from error
