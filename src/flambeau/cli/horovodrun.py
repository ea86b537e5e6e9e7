"""`flambeau horovodrun`: the launcher of Horovod, with the flags that people use."""

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
        typer.Option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts: this one only."),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option("--hostfile", "-hostfile", help="Lines of a host and its slots: HOST slots=N"),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline-filename", help="Write a timeline for chrome://tracing."),
    ] = None,
    fusion_mb: Annotated[
        int | None,
        typer.Option("--fusion-threshold-mb", min=0, help="Sum up to so many MB at once."),
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
    """Run a script written for Horovod on several processes of this machine.

    As flambeau run -n 4 --alias horovod SCRIPT.py. For other machines start the processes with
    srun, mpirun or torchrun: mpirun -n 8 flambeau run --alias horovod SCRIPT.py.
    """
    from flambeau.cli.horovod_hosts import local_slots
    from flambeau.cli.run import run

    count = processes or local_slots(hosts, hostfile) or 1
    local_slots(hosts, hostfile, needed=count)
    _set_variables(
        {
            "HOROVOD_TIMELINE": timeline and timeline.resolve(),
            "HOROVOD_FUSION_THRESHOLD": None if fusion_mb is None else fusion_mb << 20,
            "HOROVOD_CACHE_CAPACITY": cache,
            "HOROVOD_STALL_CHECK_TIME_SECONDS": stall_seconds,
            "HOROVOD_STALL_CHECK_DISABLE": 1 if no_stall_check else None,
            "HOROVOD_START_TIMEOUT": start_timeout,
        }
    )
    words = _without_python(command)
    module = words[0] == "-m"
    program, *arguments = words[1:] if module else words
    run(program, arguments, module=module, processes=count, logs=logs, alias=["horovod"])


def _set_variables(values: dict[str, object]) -> None:
    """Set what the ranks, which inherit it, read as Horovod's settings."""
    import os

    os.environ.update({name: str(value) for name, value in values.items() if value is not None})


def _without_python(command: list[str]) -> list[str]:
    """Return a command without the interpreter, which is that of Flambeau."""
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
