"""Exceptions of a role, formatted for users."""

import errno
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from flambeau.checkpoint.os_errors import machine_reason
from flambeau.errors import FlambeauError

_OURS = Path(__file__).parents[1]
_LIBRARIES = tuple(
    Path(path)
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
# Messages of torch and other libraries for errors that carry no error number.
_PHRASES = {
    "No space left on device": errno.ENOSPC,
    "can't allocate memory": errno.ENOMEM,
    "CUDA out of memory": errno.ENOMEM,
}


def recognised(error: BaseException) -> str | None:
    """Return what happened and what to do, for causes that need no traceback; else None."""
    if isinstance(error, FlambeauError):
        return str(error)
    for cause in _chain(error):
        reason = machine_reason(_error_number(cause))
        if reason is not None:
            name = getattr(cause, "filename", None)
            return f"{name}: {reason}" if name else reason
    return None


def is_of_the_machine(error: BaseException) -> bool:
    """Return whether the cause is a full disk or the like, so that a restart does not help."""
    return any(machine_reason(_error_number(cause)) is not None for cause in _chain(error))


def _error_number(error: BaseException) -> int | None:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    return next((number for phrase, number in _PHRASES.items() if phrase in text), None)


def whole_traceback(error: BaseException) -> str:
    """Return the text that Python would print."""
    return "".join(traceback.format_exception(error)).rstrip()


def users_traceback(error: BaseException) -> str:
    """Return the traceback without Flambeau's frames; with all if no user frame is left."""
    report = traceback.TracebackException.from_exception(error)
    for part in _parts(report):
        part.stack = traceback.StackSummary.from_list(
            [frame for frame in part.stack if not Path(frame.filename).is_relative_to(_OURS)]
        )
    users = any(_is_users(frame.filename) for part in _parts(report) for frame in part.stack)
    return "".join(report.format()).rstrip() if users else whole_traceback(error)


def _is_users(filename: str) -> bool:
    path = Path(filename)
    frozen = filename.startswith("<frozen ")
    return not frozen and not any(path.is_relative_to(library) for library in _LIBRARIES)


def _parts(
    report: traceback.TracebackException | None,
) -> Iterator[traceback.TracebackException]:
    while report is not None:
        yield report
        report = report.__cause__ or (None if report.__suppress_context__ else report.__context__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
