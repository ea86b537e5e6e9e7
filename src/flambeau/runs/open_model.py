"""Open what a job's settings name: the user's code, the model, the loss."""

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
    """Loads the user's code of a run, also from the folder where the run was started."""
    import_folders.use(run.code)
    return partial(user_code.load, directory=run.code)


def build_model(ref: CodeRef, load_code: LoadCode) -> nn.Module:
    """The module: an instance as it is; a class or function is called with its arguments."""
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
    """The job's module; in use it gives probabilities of all rows, whatever was left out."""
    model = build_model(settings.model, load_code)
    keep = settings.loading.keep_negatives
    if keep < 1.0:
        assert isinstance(settings.loss, str)
        calibrate_in_use(model, settings.loss, keep)
    return model


def open_loss(settings: JobSettings, load_code: LoadCode) -> Loss | None:
    """Return the loss, with the user's own functions loaded; None if the user's own step has it."""
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
