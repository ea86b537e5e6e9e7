"""`flambeau run`: a user's program on several processes."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    program: Annotated[
        str, typer.Argument(metavar="SCRIPT.py", help="What each process runs; with -m a module.")
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
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each; by default the cores are shared evenly."),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(help="Let imports of this name mean Flambeau's own: sparktorch."),
    ] = None,
) -> None:
    """Run a script on several processes of this machine, ready for torch.distributed.

    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set. With --alias and without -n
    the script is a plain one that starts processes itself, such as a driver of Spark: it runs here.
    """
    from flambeau.config import Local
    from flambeau.driver.run import run_script
    from flambeau.errors import ConfigError

    given = arguments or []
    if not module and not Path(program).is_file():
        raise ConfigError(f"there is no script {program}; a module is run with -m")
    if alias:
        from flambeau.compat import aliases

        if processes is None:
            aliases.run_aliased(alias, program, given, module=module)
            return
        given = [",".join(alias), *(["-m"] if module else []), program, *given]
        program, module = aliases.__name__, True
    cluster = Local(processes or 1, threads_per_worker=threads)
    raise typer.Exit(run_script(program, given, cluster, module=module))
