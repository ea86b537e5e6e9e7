"""`flambeau angel`: jobs with the parameters of PyTorch on Angel."""

from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from flambeau.config.plural import number_of
from flambeau.observe import Event, Observer

if TYPE_CHECKING:
    from flambeau.compat.angel.words import AngelJob


def angel(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="key:value... | make ALGORITHM --input_dim ...",
            help="The arguments of a job, or a model to write a model file for.",
        ),
    ],
) -> None:
    """Run a job of PyTorch on Angel, or make a model file for one.

    flambeau angel make deepfm --input_dim 148 --n_fields 13 --embedding_dim 10 --fc_dims 10 5 1
    flambeau angel trainInput:census torchModelPath:deepfm.pt torchOutputModelPath:out.pt
    """
    if words[0] == "make":
        from flambeau.compat.angel.making import make

        typer.echo(f"written: {make(words[1:])}")
        return
    from flambeau.compat.angel.words import parse_words

    job, idle = parse_words(words)
    if idle:
        typer.echo(f"ignored, since they have no effect here: {', '.join(idle)}", err=True)
    if job.action_type == "predict":
        _predict(job)
    else:
        _train(job)


def _train(job: "AngelJob") -> None:
    from flambeau.compat.angel.training import Training
    from flambeau.driver.label_mapping import report

    training = Training(job)
    typer.echo(
        f"model {training.model.contract.kind}, {number_of(training.rows[0], 'row')} in "
        f"{job.train_input}"
    )
    if training.label_map and not job.label_map:
        typer.echo(report(training.label_map))
    result = training.run([EpochLines(job.evals)])
    typer.echo(f"run directory: {result.run_dir}")
    for name, path in (
        ("model file", job.torch_output_model_path),
        ("tables", job.angel_model_output_path),
    ):
        if path:
            typer.echo(f"{name}: {path}")


def _predict(job: "AngelJob") -> None:
    from flambeau.compat.angel.predicting import predict

    path, rows = predict(job)
    typer.echo(f"{number_of(rows, 'row')} written to {path}")


@final
class EpochLines(Observer):
    """Observer that prints the loss and Angel's evals of train and held-out data for each epoch."""

    def __init__(self, evals: tuple[str, ...]) -> None:
        self._evals = evals

    def observe(self, event: Event) -> None:
        """Print a line if the event is an evaluation."""
        if event.kind == "evaluation":
            typer.echo(epoch_line(self._evals, event.fields["epoch"], event.fields["metrics"]))

    def close(self) -> None:
        """Do nothing: there are no open resources."""


def epoch_line(evals: tuple[str, ...], epoch: int, metrics: dict[str, Any]) -> str:
    """Return `epoch 1 loss 0.412345 train auc 0.891234 validate loss 0.41 validate auc 0.88`."""
    from flambeau.compat.angel.words import EVALS

    parts = [f"epoch {epoch}"]
    for shown, prefix in (("train", "train/"), ("validate", "")):
        loss = "loss" if shown == "train" else f"{shown} loss"
        named = {loss: f"{prefix}loss"} | {
            f"{shown} {name}": prefix + EVALS[name] for name in evals
        }
        parts += [
            f"{name} {metrics[metric]:.6f}" for name, metric in named.items() if metric in metrics
        ]
    return " ".join(parts)
