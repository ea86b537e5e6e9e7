"""`flambeau run`: a user's program on several processes."""

import shutil
from pathlib import Path
from typing import Annotated, Literal

import typer

from flambeau.cli.given import ClusterOption, HostsOption, parse_cluster


def run(
    program: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT.py",
            help="What each process runs: a Python script, with -m a module, or any program.",
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="Run a module by its name, as python -m does.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option("-n", "--processes", min=1, help="How many processes; 1 unless given."),
    ] = None,
    cluster: ClusterOption = None,
    hosts: HostsOption = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each; by default the cores are shared evenly."),
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How often all processes start again after one failed.")
    ] = 0,
    logs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write what each process prints to DIR/rank-N.log.",
            show_default=False,
        ),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(help="Let imports of this name mean Flambeau's own: horovod, sparktorch."),
    ] = None,
) -> None:
    """Run a script or program on several processes, ready for torch.distributed.

    Options come before it, and all that follows is its own: flambeau run -n 4 -- ./program --fast.
    RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and MASTER_PORT are set.
    What processes print begins with their rank, and the first failure is shown last. Under a
    launcher (srun, mpirun, torchrun) its processes work together: srun -n 8 flambeau run SCRIPT.py.
    With --alias and without -n the script is a plain one that starts processes itself, such as a
    driver of Spark: it runs here.
    """
    from flambeau.clusters.attached.launchers import detected
    from flambeau.config import Local
    from flambeau.coordination.payloads import ScriptPayload
    from flambeau.driver.run import run_script
    from flambeau.errors import ConfigError

    given = arguments or []
    kind: Literal["script", "module", "program"] = "module" if module else _kind_of(program)
    if alias:
        from flambeau.compat import aliases

        if processes is None:
            aliases.run_aliased(alias, program, given, module=module)
            return
        given = [",".join(alias), *(["-m"] if module else []), program, *given]
        program, kind = "flambeau.compat.aliased_program", "module"
    where = parse_cluster(cluster, processes, hosts)
    if where is None and detected() is None:
        where = Local(processes or 1, threads_per_worker=threads)
        if kind == "module":
            _require_module(program)
    elif processes is not None and (where is None or where.kind == "attached"):
        raise ConfigError(
            f"-n {processes}: the launcher sets the number of processes; omit -n, "
            "or give --cluster local to start others in each of them"
        )
    elif threads is not None:
        raise ConfigError("--threads is for processes of this machine; leave it out")
    payload = ScriptPayload(program, given, kind)
    raise typer.Exit(run_script(payload, where, max_restarts=max_restarts, logs=logs))


def _require_module(name: str) -> None:
    """Raise `ConfigError` if there is no such package, before each process fails to import it."""
    import os
    import sys
    from importlib.machinery import PathFinder

    from flambeau.errors import ConfigError

    package = name.partition(".")[0]
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None:
        raise ConfigError(f"-m {name}: there is no module {package} here")


def _kind_of(program: str) -> Literal["script", "program"]:
    """Return "script" for a file that Python runs, "program" for an executable."""
    from flambeau.errors import ConfigError

    if program.endswith(".py") and Path(program).is_file():
        return "script"
    if shutil.which(program) is not None:
        return "program"
    if Path(program).is_file():
        return "script"
    raise ConfigError(f"there is no script or program {program}; a module is run with -m")
