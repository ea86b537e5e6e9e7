"""The application: all commands and their common error handling."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flambeau.cli.angel import angel
from flambeau.cli.criteo.command import criteo
from flambeau.cli.demo import demo
from flambeau.cli.doctor_command import doctor
from flambeau.cli.evaluate import evaluate
from flambeau.cli.export import export
from flambeau.cli.failures import as_exit_codes
from flambeau.cli.generate import generate
from flambeau.cli.horovodrun import horovodrun
from flambeau.cli.hosts.command import hosts
from flambeau.cli.predict import predict
from flambeau.cli.prepare import prepare
from flambeau.cli.report import report, watch
from flambeau.cli.run import run
from flambeau.cli.runs import diff, runs
from flambeau.cli.stacks import stacks
from flambeau.cli.tables import tables
from flambeau.cli.top import top
from flambeau.cli.train import train
from flambeau.version import __version__


class _Commands(TyperGroup):
    """Group of commands whose errors become an error message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with as_exit_codes():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flambeau {__version__}")
        raise typer.Exit


@app.callback()
def flambeau(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Train any PyTorch model across many processes, and use what was trained.

    Start with: flambeau demo
    """


app.command()(prepare)
app.command()(train)
# Arguments after the script belong to the script, even if they look like options of `flambeau`.
app.command(context_settings={"allow_interspersed_args": False})(run)
app.command(context_settings={"allow_interspersed_args": False})(horovodrun)
app.command()(runs)
app.command()(diff)
app.command()(report)
app.command()(watch)
app.command()(top)
app.command()(stacks)
app.command()(evaluate)
app.command()(predict)
app.command()(export)
app.command()(tables)
app.add_typer(generate, name="generate")
app.add_typer(hosts, name="hosts")
app.command()(doctor)
# `angel make` parses its own arguments, which look like options.
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    angel
)
app.command()(criteo)
app.command()(demo)
