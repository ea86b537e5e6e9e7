"""Opening of a job's user code, model and loss from its settings."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from flambeau.checkpoint import RunDirectory, user_code
from flambeau.config import (
    CodeRef,
    JobSettings,
)
from flambeau.errors import ModelError
from flambeau.inference.calibration import calibrate_in_use
from flambeau.runs import import_folders
from flambeau.training.losses import Loss, build_loss

LoadCode = Callable[[CodeRef], Any]


def code_loader(run: RunDirectory) -> LoadCode:
    """Return a loader of a run's user code, which also searches the folder of the run's start."""
    import_folders.use(run.code)
    return partial(user_code.load, directory=run.code)


def build_model(ref: CodeRef, load_code: LoadCode) -> nn.Module:
    """Build the module: an instance is used itself; a class or function is called."""
    found = load_code(ref)
    if not isinstance(found, nn.Module) and callable(found):
        found = load_code(ref.model_copy(update={"call": True}))
    if not isinstance(found, nn.Module):
        raise ModelError(
            f"model {ref.name} is a {type(found).__name__}; it must be an nn.Module, or a class "
            "or function that gives one"
        )
    return found


def build_job_model(settings: JobSettings, load_code: LoadCode) -> nn.Module:
    """Build the job's module; in evaluation mode its outputs are calibrated for all rows."""
    model = build_model(settings.model, load_code)
    keep = settings.loading.keep_negatives
    if keep < 1.0:
        assert isinstance(settings.loss, str)
        calibrate_in_use(model, settings.loss, keep)
    return model


def open_loss(settings: JobSettings, load_code: LoadCode) -> Loss | None:
    """Return the loss, with the user's own functions; None if the user's step computes it."""
    loss = settings.loss
    if settings.step is not None and loss is None:
        return None
    if isinstance(loss, dict):
        return build_loss(
            {
                task: load_code(item) if isinstance(item, CodeRef) else item
                for task, item in loss.items()
            }
        )
    return build_loss(load_code(loss) if isinstance(loss, CodeRef) else loss)
