"""Parsing of clusters, runs and data on the command line."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flambeau.checkpoint import RunDirectory
    from flambeau.config import Cluster, DatasetData, FileData, JobSettings


class ClusterName(StrEnum):
    """Clusters that need no settings."""

    LOCAL = "local"
    SPARK = "spark"
    RAY = "ray"
    ATTACHED = "attached"
    SSH = "ssh"


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


ClusterOption = Annotated[
    ClusterName | None,
    typer.Option(
        help="Where processes run; by default here, or in all processes that a launcher such as "
        "srun, mpirun or torchrun has started.",
        show_default=False,
    ),
]


HostsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Run on the hosts of this file, which are reached by ssh; --cluster ssh reads "
        "hosts.txt.",
        show_default=False,
    ),
]


def parse_cluster(
    name: ClusterName | None, workers: int | None = None, hosts: str | None = None
) -> "Cluster | None":
    """Return the cluster that a name or a host file on the command line selects."""
    from flambeau.config import Attached, Local, Ray, Spark, Ssh
    from flambeau.errors import ConfigError

    if hosts is not None:
        if name not in (None, ClusterName.SSH):
            raise ConfigError(f"--hosts {hosts}: it is for --cluster ssh, not for {name}")
        return Ssh(hosts) if workers is None else Ssh(hosts, workers=workers)
    if name is None:
        return None
    if name is ClusterName.ATTACHED:
        return Attached()
    if name is ClusterName.SSH:
        return Ssh() if workers is None else Ssh(workers=workers)
    kinds = {ClusterName.LOCAL: Local, ClusterName.SPARK: Spark, ClusterName.RAY: Ray}
    return kinds[name](workers or 1)


def is_driver(cluster: "Cluster | None") -> bool:
    """Return whether this process prints the output of a job on this cluster.

    Of the processes of a launcher, only rank 0 does.
    """
    from flambeau.clusters.attached.launchers import identity_of
    from flambeau.config import Attached
    from flambeau.driver.topology import cluster_of

    where = cluster_of(cluster)
    return not isinstance(where, Attached) or identity_of(where).rank == 0


def is_export_place(place: Path) -> bool:
    """Return whether a folder is an export or contains exports, and is not a run."""
    from flambeau.checkpoint import RunDirectory
    from flambeau.inference.export_description import is_export

    if not place.is_dir() or RunDirectory(place).job_file.is_file():
        return False
    return is_export(place) or any(is_export(each) for each in place.iterdir() if each.is_dir())


def open_run(reference: str) -> tuple["RunDirectory", "JobSettings", str]:
    """Return a run, its settings and the requested checkpoint; allow its code to be loaded."""
    from flambeau.checkpoint import RunDirectory, parse_reference
    from flambeau.runs.stored_code import allow_code
    from flambeau.runs.trained_run import read_settings

    # `python` itself would also search for the user's modules there.
    sys.path.insert(0, os.getcwd())
    path, which = parse_reference(reference)
    run = RunDirectory(path)
    settings = read_settings(run)
    allow_code(run, settings)
    return run, settings, which


def parse_data(text: str, format: str | None, options: list[str]) -> "FileData | DatasetData":
    """Return data given as in a job file: a path or glob, or `module:function`."""
    from flambeau.config import DatasetData, FileData
    from flambeau.config.overrides import override
    from flambeau.config.shorthands import data_form

    values: dict[str, Any] = {}
    override(values, options)
    share = values.pop("share", None)
    form = data_form({"path": text, "options": values})
    if "code" in form:
        return DatasetData.parse(form)
    return FileData.parse({**form, "format": format, "share": share})
