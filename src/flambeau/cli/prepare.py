"""`flambeau prepare`: preparation of features from raw files, as described in a file."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flambeau.cli.given import ClusterName, ClusterOption, is_driver, parse_cluster
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError

if TYPE_CHECKING:
    from flambeau.config import Cluster
    from flambeau.config.choices import ClusterChoice
    from flambeau.features.features_file import FeaturesFile
    from flambeau.features.preparing.prepared import Prepared


def prepare(
    features_file: Annotated[
        Path, typer.Argument(metavar="FEATURES.yaml", help="Data, operations and split.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[key=value]...",
            help="Keys of the file to change (data=logs/*.csv cluster.local.workers=4) or to "
            "remove (~split).",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where features and pipeline go.", show_default=False),
    ] = None,
    cluster: ClusterOption = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for statistics, such as 4G; by default 1G.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Write report.html there, with a picture of each column; report=FILE "
            "writes it to another place.",
        ),
    ] = False,
) -> None:
    """Fit a pipeline on the rows to train on, and write the features of all rows.

    \b
    FEATURES.yaml, for example:
      data: {path: logs/*.tsv, format: tsv, options: {names: \\[user, item, price, time]}}
      split: {by_time: {column: time, valid: 0.1, test: 0.1}}
      operations:
        - log: price
        - categorify: {columns: \\[user, item], min_count: 2}
    or for Criteo's logs, instead of operations:
      pipeline: {criteo: {min_count: 10}}

    The folder gets train/, valid/ and test/ with Parquet files, and the fitted pipeline.

    The same command again resumes what was interrupted.
    """
    from flambeau.features.features_file import load_features_file

    job = load_features_file(features_file, overrides or [])
    job = replace(job, out=out or job.out, memory=memory or job.memory, report=report or job.report)
    # Modules beside the file can be imported, as with a job file.
    sys.path.insert(0, str(features_file.parent.resolve()))
    where = _cluster(cluster, job.cluster)
    try:
        prepared = _prepare(job, where)
    except KeyboardInterrupt as error:
        if hasattr(error, "told_by_rank_0"):
            raise
        typer.echo("Stopped. Run the same command to resume.", err=True)
        raise typer.Exit(130) from None
    if is_driver(where):
        _show(prepared)
        if job.report:
            page = prepared.folder / "report.html" if job.report is True else job.report
            typer.echo(f"report: {page}")


def _prepare(job: "FeaturesFile", cluster: "Cluster | None") -> "Prepared":
    from flambeau.features.raw_data import open_rows

    if job.out is None:
        raise ConfigError(f"{job.path}: 'out' is missing: write it there, or give --out DIR")
    if job.data is None:
        raise ConfigError(f"{job.path}: 'data' is missing: the path of files to prepare")
    job.check_columns(open_rows(job.data, job.pipeline.format).schema)
    return job.pipeline.fit_transform(
        job.data,
        split=job.split,
        out=job.out,
        cluster=cluster,
        memory=job.memory,
        observe=job.observe,
        report=job.report,
    )


def _cluster(name: ClusterName | None, written: "ClusterChoice | None") -> "Cluster | None":
    """Return the requested cluster, with its settings from the file; None: the default."""
    if name is None:
        return None if written is None else written.chosen
    if written is not None and name.value in written.model_fields_set:
        chosen: Cluster = written.chosen
        return chosen
    # Without a number of workers, all cores of this machine are used.
    return None if name is ClusterName.LOCAL else parse_cluster(name)


def _show(prepared: "Prepared") -> None:
    """Print the number of rows of each part and its folder."""
    for name, rows in prepared.rows.items():
        if rows:
            typer.echo(f"{name}: {number_of(rows, 'row')} in {prepared.folder / name}")
    typer.echo(f"pipeline: {prepared.folder / 'pipeline'}")
