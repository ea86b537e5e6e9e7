"""`flambeau hosts check`, `sync` and `run`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flambeau.config.plural import number_of

if TYPE_CHECKING:
    from flambeau.clusters.ssh.run_on_all import Ended

hosts = typer.Typer(
    no_args_is_help=True,
    help="Look at, copy to, and run commands on hosts that ssh reaches.",
)

HostsArgument = Annotated[
    Path, typer.Argument(metavar="HOSTS.txt", help="A file with one host per line.")
]
SshOption = Annotated[
    str, typer.Option(help="The ssh program, perhaps with options: 'ssh -F config -i key.pem'.")
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        help="Python on the hosts; by default the same path as here, or else python3.",
        show_default=False,
    ),
]
SecondsOption = Annotated[
    float, typer.Option("--timeout", help="Seconds that a host has to answer.", min=1)
]


@hosts.command()
def check(
    hosts_file: HostsArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ssh: SshOption = "ssh",
    python: PythonOption = None,
    timeout: SecondsOption = 30.0,
) -> None:
    """Show what each host offers, and what to fix. Exit code 1 if something must be fixed."""
    from flambeau.cli.hosts.checked import as_objects, table
    from flambeau.clusters.ssh.check import check_hosts
    from flambeau.clusters.ssh.connection import SshProgram
    from flambeau.config.host_file import read_hosts

    names = [host.name for host in read_hosts(hosts_file)]
    checked = check_hosts(SshProgram(ssh), names, python=python, seconds=timeout)
    if as_json:
        import json

        typer.echo(json.dumps(as_objects(checked), indent=1))
    else:
        typer.echo(table(checked))
    raise typer.Exit(any(each.problems for each in checked))


@hosts.command()
def sync(
    hosts_file: HostsArgument,
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The folder of the project.")
    ] = Path("."),
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The folder on the hosts; by default the same path. One that does not begin with "
            "a slash begins in the home directory there.",
            show_default=False,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Leave out files and folders of this name, too: *.bin; /data only at the top.",
        ),
    ] = None,
    venv: Annotated[
        bool,
        typer.Option(
            "--venv/--no-venv", help="Copy the virtual environment to hosts that can use it."
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be copied.")
    ] = False,
    ssh: SshOption = "ssh",
    python: PythonOption = None,
    timeout: SecondsOption = 30.0,
) -> None:
    """Copy the project and its virtual environment to all hosts that do not share the folder.

    Version control, caches, run directories and other environments are left out. Nothing is
    removed on hosts, but for files of an older copy of the environment.
    """
    from flambeau.cli.hosts.synced import Display, show
    from flambeau.clusters.ssh.connection import SshProgram
    from flambeau.clusters.ssh.sync import make_plan, sync_hosts
    from flambeau.config.host_file import read_hosts

    names = [host.name for host in read_hosts(hosts_file)]
    program = SshProgram(ssh)
    plan = make_plan(folder, to=to, exclude=exclude or (), environment=venv)
    with Display() as display:
        done = sync_hosts(
            program,
            names,
            plan,
            progress=display.progress,
            python=python,
            dry_run=dry_run,
            seconds=timeout,
        )
    show(done, plan, dry_run=dry_run)
    raise typer.Exit(any(each.problem is not None for each in done))


@hosts.command()
def run(
    hosts_file: HostsArgument,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...",
            help="A program and its arguments; a single word is a line for the shell there.",
        ),
    ],
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="Run it in the folder with the path of the current one, not at home."
        ),
    ] = False,
    ssh: SshOption = "ssh",
) -> None:
    """Run a command on all hosts at once; lines that it writes begin with the host's name.

    The exit code is that of the first failure. Ctrl-C ends the command on all hosts.
    """
    from flambeau.clusters.ssh.connection import SshProgram
    from flambeau.clusters.ssh.run_on_all import run_on_all
    from flambeau.config.host_file import read_hosts

    names = [host.name for host in read_hosts(hosts_file)]
    line = command[0] if len(command) == 1 else shlex.join(command)
    folder = str(Path.cwd()) if here else "."
    ended = run_on_all(SshProgram(ssh), names, line, _show_line, folder=folder)
    failed = [each for each in ended if each.code != 0]
    if failed:
        _show_failures(failed, len(names))
        raise typer.Exit(failed[0].code)


def _show_line(host: str, line: str, is_error: bool) -> None:
    typer.echo(f"[{host}] {line}", err=is_error)


def _show_failures(failed: list["Ended"], hosts: int) -> None:
    from flambeau.cli.failures import say_error

    lines = [
        f"{each.host}: exit code {each.code}" if each.problem is None else str(each.problem)
        for each in failed
    ]
    say_error(
        "\n".join([f"the command failed on {len(failed)} of {number_of(hosts, 'host')}:", *lines])
    )
