"""`flambeau top`: live view of a run in the terminal."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from flambeau.reports.run_view import RunView

_KEYS = "s: sort workers   p: pause   q: quit"


def top(
    run: Annotated[
        Path,
        typer.Argument(metavar="[RUN]", help="A run, or a folder of runs: then the newest one."),
    ] = Path("runs"),
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look.")
    ] = 1.0,
) -> None:
    """Show a run live: how far it is, curves, its workers and servers, and what went wrong.

    A run that has not begun is waited for. Nothing in the run is changed.
    """
    from rich.console import Console

    from flambeau.observe.progress import can_redraw
    from flambeau.reports.run_view import open_run
    from flambeau.reports.terminal_frame import frame

    view = open_run(_chosen(run))
    console = Console()
    if once:
        console.print(frame(view))
    elif can_redraw(console) and sys.stdin.isatty():
        _show_live(console, view, every)
    else:
        _show_lines(console, view, every)


def _chosen(path: Path) -> Path:
    """Return the run at `path`, or the one in this folder that changed last; wait for it."""
    from flambeau.cli.follow import wait_for_run
    from flambeau.reports.run_view import find_runs

    if not (path / "job.yaml").is_file() and path.is_dir():
        found = find_runs(path)
        if found:
            return max(found, key=_latest_change)
    wait_for_run(path)
    return path


def _latest_change(path: Path) -> float:
    """Return the time of the latest event of a run, in seconds since the epoch."""
    events = path / "events.jsonl"
    return (events if events.exists() else path / "job.yaml").stat().st_mtime


def _show_lines(console: "Console", view: "RunView", every: float) -> None:
    """Print frames one below the other until the run has ended."""
    from flambeau.reports.run_view import open_run
    from flambeau.reports.terminal_frame import frame

    pause = threading.Event()
    console.print(frame(view))
    while view.status in ("running", "starting"):
        pause.wait(every)
        view = open_run(view.directory.path, earlier=view)
        console.print(frame(view))


def _show_live(console: "Console", view: "RunView", every: float) -> None:
    """Redraw frames in place until `q` or Ctrl-C."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from flambeau.reports.run_view import open_run
    from flambeau.reports.terminal_frame import ORDERS, frame

    order, paused = 0, False
    with _keys() as read_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            room = max(5, console.height - 20)
            words = f"{_KEYS}   sorted by {ORDERS[order]}{'   paused' if paused else ''}"
            live.update(Group(frame(view, ORDERS[order], room), Text(words, "dim")), refresh=True)
            key = read_key(every)
            if key in ("q", "\x03"):
                return
            if key == "s":
                order = (order + 1) % len(ORDERS)
            elif key == "p":
                paused = not paused
            if not paused:
                view = open_run(view.directory.path, earlier=view)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read single keys from the terminal; yield a function that waits some seconds for a key."""
    import termios
    import tty

    def read_key(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield read_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
