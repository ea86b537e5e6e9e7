"""`flambeau horovodrun`: a launcher with the commonly used flags of horovodrun."""

from pathlib import Path
from typing import Annotated

import typer


def horovodrun(
    command: Annotated[
        list[str],
        typer.Argument(metavar="python SCRIPT.py [ARGS]...", help="What each process runs."),
    ],
    processes: Annotated[
        int | None, typer.Option("-np", "--num-proc", min=1, help="How many processes.")
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts; others are reached by ssh."
        ),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option("--hostfile", "-hostfile", help="Lines of a host and its slots: HOST slots=N"),
    ] = None,
    ssh_port: Annotated[
        int | None, typer.Option("-p", "--ssh-port", min=1, help="The port of ssh on all hosts.")
    ] = None,
    ssh_key: Annotated[
        Path | None,
        typer.Option("-i", "--ssh-identity-file", help="The private key for ssh."),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline-filename", help="Write a timeline for chrome://tracing."),
    ] = None,
    fusion_mb: Annotated[
        int | None,
        typer.Option("--fusion-threshold-mb", min=0, help="Fuse at most this many MB per sum."),
    ] = None,
    cycle_ms: Annotated[
        float | None, typer.Option("--cycle-time-ms", help="Has no effect: there are no cycles.")
    ] = None,
    cache: Annotated[
        int | None, typer.Option("--cache-capacity", min=0, help="Names that are remembered.")
    ] = None,
    stall_seconds: Annotated[
        int | None,
        typer.Option("--stall-check-warning-time-seconds", min=1, help="Report stalls after it."),
    ] = None,
    no_stall_check: Annotated[
        bool, typer.Option("--no-stall-check", help="Do not report stalls.")
    ] = False,
    start_timeout: Annotated[
        int | None, typer.Option("--start-timeout", min=1, help="Seconds to wait for all.")
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option("--output-filename", metavar="DIR", help="Write output to DIR/rank-N.log."),
    ] = None,
    gloo: Annotated[bool, typer.Option("--gloo", help="The default.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Has no effect.")] = False,
) -> None:
    """Run a script written for Horovod on several processes, here or on hosts.

    As flambeau run -n 4 --alias horovod SCRIPT.py. Other hosts are reached by ssh, and need the
    same Python and Flambeau at the same path. Launchers can start the processes, too: mpirun -n 8
    flambeau run --alias horovod SCRIPT.py.
    """
    from flambeau.cli.horovod_hosts import cluster_for
    from flambeau.coordination.payloads import ScriptPayload
    from flambeau.driver.run import run_script

    variables = _set_variables(
        {
            "HOROVOD_TIMELINE": timeline and timeline.resolve(),
            "HOROVOD_FUSION_THRESHOLD": None if fusion_mb is None else fusion_mb << 20,
            "HOROVOD_CACHE_CAPACITY": cache,
            "HOROVOD_STALL_CHECK_TIME_SECONDS": stall_seconds,
            "HOROVOD_STALL_CHECK_DISABLE": 1 if no_stall_check else None,
            "HOROVOD_START_TIMEOUT": start_timeout,
        }
    )
    ssh = ["ssh"]
    if ssh_port is not None:
        ssh += ["-p", str(ssh_port)]
    if ssh_key is not None:
        ssh += ["-i", str(ssh_key.resolve())]
    where = cluster_for(hosts, hostfile, processes, ssh, variables)
    payload = ScriptPayload(
        "flambeau.compat.aliased_program", ["horovod", *_without_python(command)], "module"
    )
    raise typer.Exit(run_script(payload, where, logs=logs))


def _set_variables(values: dict[str, object]) -> dict[str, str]:
    """Set Horovod's environment variables, and return all that are now set.

    Ranks on this machine inherit them.
    """
    import os

    os.environ.update({name: str(value) for name, value in values.items() if value is not None})
    return {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}


def _without_python(command: list[str]) -> list[str]:
    """Return a command without its interpreter, since ranks use the one that runs Flambeau."""
    from flambeau.errors import ConfigError

    words = list(command)
    if Path(words[0]).name.startswith("python"):
        words = words[1:]
        while words and words[0] in ("-u", "-O", "-B"):
            words = words[1:]
    elif not words[0].endswith(".py"):
        raise ConfigError(f"'{words[0]}' is not python or a script: give python SCRIPT.py")
    if not words or words == ["-m"] or (words[0].startswith("-") and words[0] != "-m"):
        raise ConfigError(f"'{' '.join(command)}' has no script: give python SCRIPT.py")
    return words
