"""`flambeau stacks`: Python stacks of the processes of a job."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flambeau.checkpoint import RunDirectory
    from flambeau.observe import Event

_POLL_SECONDS = 0.2


def stacks(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a running job.")],
    all_threads: Annotated[
        bool, typer.Option("--all-threads", help="Show threads other than the main one, too.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="How long to wait for answers.")
    ] = 20.0,
) -> None:
    """Show the Python stacks of all processes of a running job; those that are equal, once.

    It is for jobs that seem stuck, and disturbs none. The stacks are in the job's own output, too.
    """
    from flambeau.checkpoint import RunDirectory
    from flambeau.errors import RunDirectoryError
    from flambeau.reports.stacks import announced, grouped, stacks_by_process

    directory = RunDirectory(run)
    if not directory.job_file.is_file() or not directory.in_use:
        raise RunDirectoryError(f"no job runs in {run}: stacks are those of a running job")
    events = _collect(directory, timeout)
    found = stacks_by_process(events)
    for who, stack in grouped(found, all_threads=all_threads):
        typer.secho(", ".join(who), bold=True)
        typer.echo("".join(f"  {line}\n" for line in stack))
    silent = [who for who in announced(events) if who not in found]
    if silent:
        typer.echo(f"no stacks came from {', '.join(silent)}: stopped, or busy outside Python")
    raise typer.Exit(bool(silent))


def _collect(run: "RunDirectory", timeout: float) -> "list[Event]":
    """Request stacks, and return the events received until all have arrived or time is up."""
    from flambeau.errors import JobFailedError
    from flambeau.reports.stacks import announced, stacks_by_process

    begin = run.events.stat().st_size if run.events.exists() else 0
    run.stacks_request.touch()
    pause, until = threading.Event(), time.monotonic() + timeout
    events: list[Event] = []
    before = -1
    while time.monotonic() < until:
        pause.wait(_POLL_SECONDS)
        events = _events_from(run, begin)
        expected = announced(events)
        complete = expected and set(expected) <= stacks_by_process(events).keys()
        if complete and len(events) == before and not run.stacks_request.exists():
            return events
        before = len(events)
    if run.stacks_request.exists():
        run.stacks_request.unlink(missing_ok=True)
        raise JobFailedError(
            f"the driver of {run.path} has not answered within {timeout:g} s: it hangs, or runs on "
            "a machine whose files arrive here late (--timeout)"
        )
    return events


def _events_from(run: "RunDirectory", begin: int) -> "list[Event]":
    from flambeau.observe import read_events

    return list(read_events(run.events, begin))
