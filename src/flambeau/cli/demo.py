"""`flambeau demo`: a whole training, stopped and resumed, in less than a minute."""

import importlib.util
import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

GOOD_ENOUGH = 0.97
EPOCHS = 10
FIRST_EPOCHS = 3

JOB: dict[str, Any] = {
    "model": "resnet20",
    "args": {"in_channels": 1, "classes": 10},
    "train": "flambeau.cli.digits:train",
    "valid": "flambeau.cli.digits:held_out",
    "loss": "cross_entropy",
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
    # 12 steps an epoch: the first part must not end on a learning rate of zero.
    "schedule": {"kind": "cosine", "warmup": 20, "steps": 12 * EPOCHS - 20},
    "metrics": ["accuracy"],
    "batch_size": 64,
    "cluster": {"local": {"workers": 2}},
    "images": {"mean": [0.305], "std": [0.376], "crop_padding": 1},
    "checkpoints": {"keep": 2, "best": "accuracy"},
    "evaluator": True,
}


def demo(
    run_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the run goes.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Train a small ResNet on handwritten digits with two processes, stop it, and resume it."""
    from flambeau.errors import MissingDependencyError

    if importlib.util.find_spec("sklearn") is None:
        raise MissingDependencyError("the demo's data comes with it: pip install scikit-learn")
    path = _unused(run_dir)
    typer.echo(f"Training the first {FIRST_EPOCHS} of {EPOCHS} epochs with 2 workers in {path}")
    _train(path, FIRST_EPOCHS)
    typer.echo(f"Resuming from its last checkpoint, to the end of {EPOCHS} epochs")
    accuracy = _train(path, EPOCHS)
    _say_what_next(path, accuracy)
    raise typer.Exit(accuracy < GOOD_ENOUGH)


def _train(path: Path, epochs: int) -> float:
    from flambeau.config.job_file import JobFile
    from flambeau.job.from_file import run_file

    job = JobFile.parse({**JOB, "epochs": epochs, "run_dir": str(path)})
    return run_file(job, Path.cwd()).metrics["accuracy"]


def _unused(path: Path) -> Path:
    """The path itself, or with the first number that makes it new."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return path if not path.exists() else next(each for each in numbered if not each.exists())


def _say_what_next(path: Path, accuracy: float) -> None:
    verdict = "" if accuracy >= GOOD_ENOUGH else f", but {GOOD_ENOUGH} was expected"
    typer.echo(f"Accuracy on held-out digits: {accuracy:.4f}{verdict}")
    typer.echo(f"Everything about the run is in {path}. Next:")
    typer.echo(f"  tensorboard --logdir {path}/tensorboard")
    typer.echo(f"  flambeau evaluate {path}@best --metric accuracy")
    typer.echo(f"  flambeau predict {path} flambeau.cli.digits:held_out --out scores.parquet")
