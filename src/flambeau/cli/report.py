"""`flambeau report` and `flambeau watch`: the report of a run, as a file or live."""

from pathlib import Path
from typing import Annotated

import typer

from flambeau.config.plural import number_of

RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run directories; several are compared.")
]


def report(
    runs: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file; by default named after the first run.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one page about a run, or about several side by side, that needs no other file."""
    from flambeau.reports.page_file import write_page

    target = out or Path(f"{runs[0].resolve().name}.html")
    written = write_page(runs, target)
    typer.echo(f"{written}: {number_of(len(runs), 'run')}; open it in any browser")


def watch(
    runs: RunsArgument,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on this machine; 0: any free one.")
    ] = 0,
) -> None:
    """Show the page of a run in a browser, live; a run that has not begun is waited for.

    Only this machine can reach it, with the token in its URL. Ctrl-C ends it, and not the run.
    """
    import getpass
    import socket

    from flambeau.cli.follow import wait_for_run
    from flambeau.reports.live_page import LivePage

    for path in runs:
        wait_for_run(path)
    with LivePage(runs, port) as server:
        typer.echo(f"Open {server.url}")
        there = f"127.0.0.1:{server.server_port}"
        tunnel = (
            f"ssh -N -L {server.server_port}:{there} {getpass.getuser()}@{socket.gethostname()}"
        )
        typer.echo(f"From another machine, first: {tunnel}")
        typer.echo("Ctrl-C ends this page, and not the run.")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("")
