"""`flambeau criteo`: from raw click logs to features, a trained model, AUC and predictions."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flambeau.cli.given import ClusterOption, is_driver, parse_cluster
from flambeau.errors import ConfigError

if TYPE_CHECKING:
    from flambeau.cli.criteo.stages import Request


class ModeName(StrEnum):
    """Splits of the rows; the names with `criteo_` are those of Intel's kit."""

    KAGGLE = "kaggle"
    SMALL = "small"
    FULL = "full"
    CRITEO_SMALL = "criteo_small"
    CRITEO_FULL = "criteo_full"


class Stage(StrEnum):
    """A stage of the command."""

    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


def criteo(
    raw: Annotated[
        str, typer.Argument(metavar="RAW", help="The folder of the logs: train.txt, or day_0, ...")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[key=value]...",
            help="Settings of the training, as in a job file: epochs=2 args.embedding_dim=32.",
        ),
    ] = None,
    mode: Annotated[
        ModeName,
        typer.Option(
            help="kaggle: the first 6/7 of train.txt are to train on. small: days 0 to 3, and day "
            "23 to test. full: days 0 to 22, and day 23 to test."
        ),
    ] = ModeName.KAGGLE,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where features, run and predictions go.")
    ] = Path("runs/criteo"),
    model: Annotated[
        str, typer.Option(help="dlrm, dlrm_small (with large batches), or another model by name.")
    ] = "dlrm",
    cluster: ClusterOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes for every stage; by default 2 train and all cores do the rest.",
            min=1,
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="For the statistics of features: 4G, say.", show_default="1G"),
    ] = None,
    min_count: Annotated[
        int, typer.Option(help="Values that occur less often in training are as unseen.", min=1)
    ] = 1,
    max_size: Annotated[
        int | None,
        typer.Option(help="Keep at most this many values of a column, the most frequent.", min=1),
    ] = None,
    only: Annotated[
        Stage | None, typer.Option(help="Do one stage only.", show_default=False)
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare/--no-prepare",
            help="Prepare features once, or train on the logs themselves, with hashed ids.",
        ),
    ] = True,
    train_days: Annotated[
        str | None, typer.Option(help="Other days to train on: 0-5 or 0,2,4.", show_default=False)
    ] = None,
    test_day: Annotated[
        int | None, typer.Option(help="Another day to test with.", show_default=False)
    ] = None,
    target_auc: Annotated[
        float | None,
        typer.Option(help="Stop training at this AUC, 0.8025 say.", min=0.5, max=1.0),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(help="Evaluate every N steps; by default at the end of an epoch.", min=1),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            help="Print a line for each worker every N steps: [0] Finished training it ...",
            min=1,
        ),
    ] = None,
    on_bad_row: Annotated[
        str, typer.Option(help="error, or skip: leave out bad rows, empty files, missing days.")
    ] = "error",
) -> None:
    """Train on Criteo's click logs: prepare features, train, evaluate, predict.

    The same command resumes what was interrupted, and leaves what is done. Settings of the
    training may be changed: flambeau criteo logs --mode small epochs=2 strategy=parameter_server
    """
    from flambeau.cli.criteo.records import Records
    from flambeau.cli.criteo.stages import STAGES, Request, Stages
    from flambeau.cli.criteo.summary import show_summary

    asked = Request(
        logs=_logs(raw, mode, train_days, test_day, on_bad_row),
        out=out,
        model=model,
        prepares=prepare,
        min_count=min_count,
        max_size=max_size,
        memory=memory,
        cluster=_cluster_values(cluster, workers, overrides or []),
        workers=workers,
        target_auc=target_auc,
        evaluate_every=evaluate_every,
        lines=lines,
        overrides=tuple(overrides or []),
    )
    drives = is_driver(parse_cluster(cluster, workers))
    records = Records(out, asked.way, writes=drives)
    stages = Stages(asked, records, _teller(drives))
    stages.check()
    try:
        for stage in STAGES if only is None else (only.value,):
            stages.do(stage)
    except KeyboardInterrupt as error:
        if hasattr(error, "told_by_rank_0"):
            raise
        typer.echo("Stopped. Run the same command to resume.", err=True)
        raise typer.Exit(130) from None
    if drives:
        show_summary(records)
        _show_next(asked)


def _logs(
    raw: str, mode: ModeName, train_days: str | None, test_day: int | None, on_bad_row: str
) -> Any:
    from flambeau.cli.criteo.logs import Mode, find_logs

    if on_bad_row not in ("error", "skip"):
        raise ConfigError(f"--on-bad-row {on_bad_row!r}: give error or skip")
    options = {} if on_bad_row == "error" else {"on_bad_row": on_bad_row}
    known = Mode(mode.value.removeprefix("criteo_"))
    return find_logs(raw, known, train_days=train_days, test_day=test_day, options=options)


def _cluster_values(name: Any, workers: int | None, overrides: list[str]) -> dict[str, Any]:
    """Return the cluster as in a job file, including its settings among the overrides."""
    from flambeau.config import Attached
    from flambeau.config.overrides import override
    from flambeau.driver.topology import cluster_of

    attached = isinstance(cluster_of(parse_cluster(name, workers)), Attached)
    kind = "attached" if attached else "local" if name is None else name.value
    values: dict[str, Any] = {"cluster": {kind: {} if attached else {"workers": workers or 2}}}
    override(values, [text for text in overrides if text.startswith("cluster")])
    found: dict[str, Any] = values["cluster"]
    return found


def _teller(drives: bool) -> Any:
    """Return a function that prints a line if this process drives the job, else does nothing."""
    return (lambda line: typer.echo(line, err=True)) if drives else (lambda line: None)


def _show_next(asked: "Request") -> None:
    folder = asked.folder
    curves, predictions, model = (
        folder / "run/tensorboard",
        folder / "predictions",
        folder / "export",
    )
    if curves.is_dir():
        typer.echo(f"curves:      tensorboard --logdir {curves}")
    if predictions.is_dir():
        typer.echo(f"predictions: {predictions}")
    if model.is_dir():
        typer.echo(f"the model:   fb.Predictor.load({str(model)!r}) takes raw rows")
