"""`flambeau doctor`: what this machine offers."""

import dataclasses
import json
from typing import Annotated

import typer

#: Without these, no job runs at all.
NEEDED = ("Python", "torch", "folder")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what this machine offers to a job, and what to install for more."""
    from rich.console import Console

    from flambeau.cli.doctor import report, show

    checks = report()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(check) for check in checks], indent=1))
    else:
        show(checks, Console())
    raise typer.Exit(any(not check.ok for check in checks if check.name in NEEDED))
