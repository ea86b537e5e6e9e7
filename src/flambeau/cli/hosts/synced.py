"""Output of `flambeau hosts sync`: its progress, and the result for each host."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, final

import typer

from flambeau.config.plural import number_of

if TYPE_CHECKING:
    from flambeau.clusters.ssh.delivery import Delivered
    from flambeau.clusters.ssh.sync import Plan, Synced

_MB = 1 << 20


@final
class Display(AbstractContextManager["Display"]):
    """Progress display: a bar for each host on a terminal, elsewhere a line for each 10 %."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        console = Console(stderr=True, force_jupyter=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._is_terminal = console.is_terminal
        self._tasks: dict[tuple[str, str], Any] = {}
        self._tenths: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def progress(self, host: str, what: str, done: int, total: int) -> None:
        """Show how many bytes a host has received. Thread-safe."""
        key = host, what
        with self._lock:
            if not self._is_terminal:
                self._line(key, done, total)
                return
            if key not in self._tasks:
                self._tasks[key] = self._bars.add_task(f"{host}: {what}")
            self._bars.update(self._tasks[key], completed=done, total=max(done, total))

    def _line(self, key: tuple[str, str], done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if tenth > self._tenths.get(key, 0) and total >= _MB:
            self._tenths[key] = tenth
            typer.echo(f"{key[0]}: {key[1]} {_size(done)} of {_size(total)}", err=True)


def show(done: Sequence["Synced"], plan: "Plan", *, dry_run: bool) -> None:
    """Print a line for each host, and the commands that the user has to run."""
    from flambeau.cli.failures import say_error

    for each in done:
        if each.problem is None:
            parts = [_project(each, plan, dry_run), *_environment(each, plan, dry_run)]
            typer.echo(f"{each.host}: {'; '.join(parts)}")
    installs = [each.install for each in done if each.install]
    if installs:
        typer.echo("To install what is needed, run:")
        for command in installs:
            typer.echo(f"  {command}")
    problems = [str(each.problem) for each in done if each.problem is not None]
    if problems:
        title = f"{len(problems)} of {number_of(len(done), 'host')} did not get all files:"
        say_error("\n".join([title, *problems]))


def _project(synced: "Synced", plan: "Plan", dry_run: bool) -> str:
    if synced.project is None:
        return f"{plan.target} is shared, nothing is copied"
    return _delivered(synced.project, plan.project.files, plan.target, synced.by, dry_run)


def _environment(synced: "Synced", plan: "Plan", dry_run: bool) -> list[str]:
    """Return messages about the virtual environment, and whether the host has what jobs need."""
    said = [synced.note] if synced.note else []
    if synced.environment is not None and plan.environment_files is not None:
        files, target = plan.environment_files.files, plan.environment_target
        said.append(_delivered(synced.environment, files, target, synced.by, dry_run))
    if dry_run and synced.environment is not None:
        return said
    return [*said, f"{synced.python} {'lacks' if synced.install else 'has'} what jobs need"]


def _delivered(delivered: "Delivered", files: int, target: str, by: str, dry_run: bool) -> str:
    copied = delivered.copied
    if copied is None:
        return f"{target} is shared with {delivered.by_way_of}"
    verb = "would copy" if dry_run else "copied"
    seconds = "" if dry_run else f", {copied.seconds:.1f} s by {by}"
    return (
        f"{verb} {copied.files:,} of {number_of(files, 'file')} "
        f"({_size(copied.bytes)}{seconds}) to {target}"
    )


def _size(count: int) -> str:
    if count >= 1000 * _MB:
        return f"{count / (1 << 30):.1f} GB"
    if count >= _MB:
        return f"{count / _MB:.1f} MB"
    return f"{count / 1024:.1f} kB" if count >= 1024 else number_of(count, "byte")
