"""`flambeau doctor`: checks of this machine."""

import dataclasses
import json
from typing import Annotated

import typer

#: Checks that must succeed for any job to run.
NEEDED = ("Python", "torch", "folder")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    affinity: Annotated[
        bool, typer.Option("--affinity", help="Show which cores each rank would be bound to.")
    ] = False,
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, help="With --affinity: ranks on this machine; default: 1.")
    ] = None,
    threads_per_core: Annotated[
        int, typer.Option(min=1, max=4, help="With --affinity: hardware threads of each core.")
    ] = 1,
) -> None:
    """Show what this machine offers to a job, and what to install for more."""
    if affinity:
        _show_affinity(ranks_per_node or 1, threads_per_core, as_json)
        return
    from rich.console import Console

    from flambeau.cli.doctor import report, show

    checks = report()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(check) for check in checks], indent=1))
    else:
        show(checks, Console())
    raise typer.Exit(any(not check.ok for check in checks if check.name in NEEDED))


def _show_affinity(ranks: int, threads_per_core: int, as_json: bool) -> None:
    from flambeau.clusters.affinity.bindings import plan_bindings
    from flambeau.clusters.affinity.picture import draw
    from flambeau.clusters.affinity.processors import read_processors

    processors = read_processors()
    bindings = plan_bindings(processors, ranks, threads_per_core=threads_per_core)
    if as_json:
        found = {
            "processors": dataclasses.asdict(processors),
            "ranks": [dataclasses.asdict(binding) for binding in bindings],
        }
        typer.echo(json.dumps(found, indent=1))
    else:
        typer.echo("\n".join(draw(processors, bindings)))
