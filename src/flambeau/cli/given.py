"""Runs and data as they are given on the command line."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flambeau.checkpoint import RunDirectory
    from flambeau.config import DatasetData, FileData, JobSettings

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN[@best|@latest|@step-N]", help="A run directory.")
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="The data's format; by default it is found out."),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="key=value", help="An option of the format: split=test."),
]


def open_run(reference: str) -> tuple["RunDirectory", "JobSettings", str]:
    """A run, its settings, and which of its checkpoints is meant; its code may be run."""
    from flambeau.checkpoint import RunDirectory, parse_reference
    from flambeau.runs.stored_code import allow_code
    from flambeau.runs.trained_run import read_settings

    # Where `python` itself would look for the user's modules.
    sys.path.insert(0, os.getcwd())
    path, which = parse_reference(reference)
    run = RunDirectory(path)
    settings = read_settings(run)
    allow_code(run, settings)
    return run, settings, which


def parse_data(text: str, format: str | None, options: list[str]) -> "FileData | DatasetData":
    """Data as in a job file: a path or glob, or `module:function`."""
    from flambeau.config import DatasetData, FileData
    from flambeau.config.overrides import override
    from flambeau.config.shorthands import data_form

    values: dict[str, Any] = {}
    override(values, options)
    form = data_form({"path": text, "options": values})
    if "code" in form:
        return DatasetData.parse(form)
    return FileData.parse({**form, "format": format})
