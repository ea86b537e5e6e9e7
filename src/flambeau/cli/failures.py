"""Errors of a command as a message on stderr and an exit code.

2: user error; 1: failed job; 130: Ctrl-C.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from flambeau.checkpoint.os_errors import file_reason
from flambeau.errors import (
    CheckpointError,
    JobFailedError,
    MessagingError,
    UserError,
    WorkerFailedError,
)


@contextmanager
def as_exit_codes() -> Iterator[None]:
    """Turn expected errors into exit codes; others are bugs, and keep their traceback."""
    try:
        with _in_one_line(), warnings.catch_warnings():
            warnings.showwarning = _say_warning
            yield
    except (UserError, CheckpointError, MessagingError) as error:
        say_error(str(error))
        raise typer.Exit(2) from None
    except WorkerFailedError as error:
        typer.echo(error.worker_traceback, err=True)
        say_error(error.message)
        raise typer.Exit(1) from None
    except JobFailedError as error:
        say_error(str(error))
        raise typer.Exit(1) from None
    except OSError as error:
        reason = file_reason(error.errno)
        if reason is None:
            raise
        say_error(f"{error.filename or 'a file'}: {reason}")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Show only one line of an error that rank 0 shows in full."""
    try:
        yield
    except BaseException as error:
        told = getattr(error, "told_by_rank_0", None)
        if told is None or isinstance(error, SystemExit):
            raise
        told.end(error)
        user_error = isinstance(error, UserError | CheckpointError | MessagingError)
        interrupted = isinstance(error, KeyboardInterrupt)
        raise typer.Exit(130 if interrupted else 2 if user_error else 1) from None


def _say_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning without the line of code that caused it."""
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)


def say_error(message: str) -> None:
    """Print `error: ...` on stderr, red on a terminal, with further lines indented."""
    first, *more = message.splitlines() or [""]
    typer.secho("\n  ".join([f"error: {first}", *more]), fg=typer.colors.RED, err=True)
