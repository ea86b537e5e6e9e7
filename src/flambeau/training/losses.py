"""Losses: the number that training minimises.

Whatever form a loss is given in, its value for a batch is the sum of weight x loss over the rows,
divided by the number of rows. Dividing by the sum of weights instead would make the result depend
on how rows are spread over workers; this way N workers compute exactly what one computes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flambeau.config.data import map_advice
from flambeau.config.plural import number_of
from flambeau.config.settings import nearest
from flambeau.data.batch import Batch
from flambeau.errors import ConfigError, DataError, ModelError

LossSetting = str | Callable[..., Any] | Mapping[str, str | Callable[..., Any]] | None


#: The loss of models that return logits [rows, rows]: each row's own item is the target.
IN_BATCH = "in_batch_softmax"


class Loss(ABC):
    """Loss of a batch; `name` is None for the user's own."""

    name: str | None = None

    @abstractmethod
    def __call__(self, output: Any, batch: Batch, label: Any, weight: Tensor | None) -> Tensor:
        """Return the loss as a scalar. Rows whose label is NaN add 0, and still count as rows."""


@final
class NamedLoss(Loss):
    """Loss that is given by its name."""

    def __init__(self, name: str) -> None:
        if name not in _NAMED:
            raise ConfigError(f"loss: unknown loss '{name}'; {nearest(name, _NAMED)}")
        self.name: str = name
        self._function = _NAMED[name]

    def __call__(self, output: Any, batch: Batch, label: Any, weight: Tensor | None) -> Tensor:
        if self.name == IN_BATCH:
            label = in_batch_label(output, label)
        return _total(self.per_row(_tensor(output, self.name), _label(label, self.name)), weight)

    def per_row(self, output: Tensor, label: Tensor) -> Tensor:
        """Return the loss of each row [rows]; the mean where a row has several labels."""
        return self._function(self.name, _full_precision(output), label)


@final
class ModuleLoss(Loss):
    """Torch loss, called as `loss(output, label)`.

    Labels are converted to the shape and type that torch's losses expect. With `reduction="mean"`
    torch averages: exact over workers unless the loss has class weights. Sample weights and missing
    labels need `reduction="none"`. Losses of probabilities and values have our `name` for them, so
    that metrics do not take outputs for logits.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.name = _NAMES_OF_TORCH.get(type(module))

    def __call__(self, output: Any, batch: Batch, label: Any, weight: Tensor | None) -> Tensor:
        if not (isinstance(output, Tensor) and isinstance(label, Tensor)):
            return self._reduced(self._module(output, label), batch, weight)
        label, missing = _without_nan(_aligned(output, label))
        output = _full_precision(output)
        label = _typed(output, label)
        self._check(output, label)
        losses = self._module(output, label)
        if missing is not None and losses.shape == missing.shape:
            losses = losses.masked_fill(missing, 0.0)
        elif missing is not None and bool(missing.any()):
            raise self._needs_rows("a missing label")
        return self._reduced(losses, batch, weight)

    def _check(self, output: Tensor, label: Tensor) -> None:
        """Raise an error for labels that would cause a wrong result or an index error in torch."""
        name = type(self._module).__name__
        if isinstance(self._module, nn.BCELoss | nn.BCEWithLogitsLoss):
            check_binary(name, label)
            return
        classes = not label.is_floating_point() and label.shape == _without_classes(output)
        if classes and isinstance(self._module, nn.CrossEntropyLoss | nn.NLLLoss):
            used = label.masked_fill(label == self._module.ignore_index, 0)
            _check_classes(name, used, output.shape[1])

    def _reduced(self, losses: Tensor, batch: Batch, weight: Tensor | None) -> Tensor:
        if weight is not None and not losses.ndim:
            raise self._needs_rows("weight=")
        return _scalar(losses, batch, weight, type(self._module).__name__)

    def _needs_rows(self, what: str) -> ModelError:
        name = type(self._module).__name__
        return ModelError(
            f"{what} needs the loss of each row, but {name} gives one number for the batch: "
            f'use {name}(reduction="none")'
        )


@final
class FunctionLoss(Loss):
    """User's `f(output, batch)`, which returns a scalar, or the loss of each row [rows].

    Weights are applied to losses of rows; a function that returns a scalar weighs rows itself. A
    function's attribute `outputs` names the loss whose outputs its model returns, for metrics.
    """

    def __init__(self, function: Callable[[Any, Batch], Tensor]) -> None:
        self._function = function
        self.name = getattr(function, "outputs", None)

    def __call__(self, output: Any, batch: Batch, label: Any, weight: Tensor | None) -> Tensor:
        losses = self._function(output, batch)
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return _scalar(losses, batch, weight, name)


@final
class TaskLosses(Loss):
    """Sum of the losses of several tasks.

    The model returns `{task: output}`, or a tuple in the order of the labels.
    """

    def __init__(self, tasks: Mapping[str, Loss]) -> None:
        self.tasks = dict(tasks)

    def __call__(self, output: Any, batch: Batch, label: Any, weight: Tensor | None) -> Tensor:
        if not isinstance(label, Mapping) or set(label) != set(self.tasks):
            given = list(label) if isinstance(label, Mapping) else _describe(label)
            raise ModelError(
                f"loss= is for the tasks {list(self.tasks)}, so label= must be "
                f"{{task: column}} with the same tasks; it gives {given}"
            )
        outputs = task_outputs(output, label)
        losses = [
            loss(outputs[task], batch, label[task], weight) for task, loss in self.tasks.items()
        ]
        return torch.stack(losses).sum()


@final
class OutputLoss(Loss):
    """Loss that the model itself returns as its output."""

    def __call__(self, output: Any, batch: Batch, label: Any, weight: Tensor | None) -> Tensor:
        if isinstance(output, Tensor) and output.ndim == 0:
            return output
        raise ModelError(
            f"without loss= the model's output must be the loss, a scalar tensor; the model gave "
            f"{_describe(output)}. Give loss='bce', 'cross_entropy', ... or f(output, batch)"
        )


def build_loss(setting: LossSetting) -> Loss:
    """Build a loss from a name, a torch loss, `f(output, batch)`, `{task: loss}`, or None."""
    if setting is None:
        return OutputLoss()
    if isinstance(setting, str):
        return NamedLoss(setting)
    if isinstance(setting, Mapping):
        return TaskLosses({task: build_loss(loss) for task, loss in setting.items()})
    if isinstance(setting, type):
        raise ConfigError(f"loss={setting.__name__} is a class: give {setting.__name__}(...)")
    return ModuleLoss(setting) if isinstance(setting, nn.Module) else FunctionLoss(setting)


def task_outputs(output: Any, label: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output of each task, from a dict or from a tuple in the order of the labels."""
    if isinstance(output, Mapping) and set(label) <= set(output):
        return {task: output[task] for task in label}
    if isinstance(output, tuple | list) and len(output) == len(label):
        return dict(zip(label, output, strict=True))
    if isinstance(output, Mapping):
        raise ModelError(
            f"label= and loss= name the tasks {list(label)}, but the model gives {list(output)}: "
            "name those, or build the model with other tasks"
        )
    raise ModelError(
        f"the tasks {list(label)} need a model that gives {{task: output}}, or a tuple of "
        f"{number_of(len(label), 'output')} in this order; the model gave {_describe(output)}"
    )


def in_batch_label(output: Any, label: Any) -> Tensor:
    """Return the target column for each row of logits [rows, rows]: its own.

    Rows whose label is 0 or missing have no target (NaN): they are only negatives of others.
    """
    output = _tensor(output, IN_BATCH)
    if output.ndim != 2 or output.shape[0] != output.shape[1]:
        raise ModelError(
            f"loss '{IN_BATCH}' needs a model that gives logits of [rows, rows], such as "
            f"TwoTower; the model gave {list(output.shape)}"
        )
    own = torch.arange(len(output), device=output.device)
    if label is None:
        return own
    label = _flat(_label(label, IN_BATCH))
    if label.shape != own.shape:
        raise ModelError(f"loss '{IN_BATCH}' takes one label for each row, not {_describe(label)}")
    paired = (label != 0) & ~label.isnan()
    return own.double().masked_fill(~paired, torch.nan)


def _in_batch(name: str, output: Tensor, label: Tensor) -> Tensor:
    label, missing = _without_nan(label)
    losses = F.cross_entropy(output, label.to(torch.int64), reduction="none")
    return losses if missing is None else losses.masked_fill(missing, 0.0)


def _elementwise(
    function: Callable[..., Tensor],
) -> Callable[[str, Tensor, Tensor], Tensor]:
    """Return a function of the loss per row, from one of the loss per element."""

    def per_row(name: str, output: Tensor, label: Tensor) -> Tensor:
        label = _aligned(output, label)
        if label.shape != output.shape:
            raise ModelError(
                f"loss '{name}' needs an output and labels of the same shape, [rows] or "
                f"[rows, values]; the model gave {list(output.shape)} for labels of "
                f"{list(label.shape)}"
            )
        label, missing = _without_nan(label)
        if name in ("bce", "bce_prob"):
            check_binary(name, label)
        losses = function(output, label.to(output.dtype), reduction="none")
        return _per_row(losses if missing is None else losses.masked_fill(missing, 0.0))

    return per_row


def _bce_prob(output: Tensor, label: Tensor, reduction: str) -> Tensor:
    inside = (output >= 0.0) & (output <= 1.0)
    if output.device.type == "cpu" and not bool(inside.all()):
        raise ModelError(
            f"loss 'bce_prob' needs probabilities; the model gave {output[~inside][0].item():g}. "
            "For a model without a final sigmoid use loss='bce'"
        )
    return F.binary_cross_entropy(output, label, reduction=reduction)


def _classwise(function: Callable[..., Tensor]) -> Callable[[str, Tensor, Tensor], Tensor]:
    """Return a function of the loss per row, from outputs [rows, classes] and integer labels."""

    def per_row(name: str, output: Tensor, label: Tensor) -> Tensor:
        label = _flat(label)
        if output.ndim < 2 or output.shape[1] < 2 or label.shape != _without_classes(output):
            raise ModelError(
                f"loss '{name}' needs an output of [rows, classes] and integer labels of [rows]; "
                f"the model gave {list(output.shape)} for labels of {list(label.shape)}"
            )
        label, missing = _without_nan(label)
        _check_classes(name, label, output.shape[1])
        losses = function(output, label.to(torch.int64), reduction="none")
        return _per_row(losses if missing is None else losses.masked_fill(missing, 0.0))

    return per_row


_NAMED: dict[str, Callable[[str, Tensor, Tensor], Tensor]] = {
    "bce": _elementwise(F.binary_cross_entropy_with_logits),
    "bce_prob": _elementwise(_bce_prob),
    "cross_entropy": _classwise(F.cross_entropy),
    "nll": _classwise(F.nll_loss),
    IN_BATCH: _in_batch,
    "mse": _elementwise(F.mse_loss),
    "mae": _elementwise(F.l1_loss),
    "huber": _elementwise(F.huber_loss),
}


# Torch's other losses take logits, which is what metrics expect without a name.
_NAMES_OF_TORCH: dict[type[nn.Module], str] = {
    nn.BCELoss: "bce_prob",
    nn.MSELoss: "mse",
    nn.L1Loss: "mae",
    nn.HuberLoss: "huber",
}


def _aligned(output: Tensor, label: Tensor) -> Tensor:
    """Return labels as [rows, 1] for outputs of [rows, 1]; otherwise without the last dimension."""
    if label.shape == output.shape:
        return label
    return label.unsqueeze(-1) if output.shape == (*label.shape, 1) else _flat(label)


def _flat(label: Tensor) -> Tensor:
    return label.squeeze(1) if label.ndim == 2 and label.shape[1] == 1 else label


def _typed(output: Tensor, label: Tensor) -> Tensor:
    """Return labels as torch's losses take them: values in the output's type, classes in int64."""
    if label.shape == output.shape:
        return label.to(output.dtype)
    return label.to(torch.int64) if label.shape == _without_classes(output) else label


def _full_precision(output: Tensor) -> Tensor:
    return output.float() if output.dtype in (torch.bfloat16, torch.float16) else output


def _without_classes(output: Tensor) -> torch.Size:
    return output.shape[:1] + output.shape[2:]


def _without_nan(label: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return labels with 0 for NaN, and a mask of NaN; the mask is None for integers."""
    if not label.is_floating_point():
        return label, None
    missing = label.isnan()
    return label.masked_fill(missing, 0.0), missing


def check_binary(name: str, label: Tensor) -> None:
    """Raise `DataError` unless labels are 0, 1 or between them."""
    _check_range(name, label, 1, "labels are 0 and 1, or between them")


def _check_classes(name: str, label: Tensor, classes: int) -> None:
    known = number_of(classes, "class", "classes")
    hint = f"the model gives {known}, so labels are 0 to {classes - 1}"
    _check_range(name, label, classes - 1, hint)


def _check_range(name: str, label: Tensor, highest: int, hint: str) -> None:
    # On a GPU this would wait for the device at each step.
    if label.device.type != "cpu" or not label.numel():
        return
    low, high = torch.aminmax(label)
    if low.item() >= 0 and high.item() <= highest:
        return
    where = ((label < 0) | (label > highest)).nonzero()[0]
    bad = label[tuple(where)].item()
    raise DataError(
        f"label {bad:g} in row {int(where[0])} of the batch does not fit loss '{name}': {hint}; "
        f"{map_advice(bad)}"
    )


def _per_row(losses: Tensor) -> Tensor:
    return losses if losses.ndim == 1 else losses.flatten(1).mean(1)


def _total(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Return the sum over rows divided by their number; 0 for an empty batch."""
    if not len(losses):
        return losses.sum()
    return (losses if weight is None else losses * weight.reshape(-1).to(losses.dtype)).mean()


def _scalar(losses: Any, batch: Batch, weight: Tensor | None, name: str) -> Tensor:
    if isinstance(losses, Tensor) and losses.ndim == 0:
        return losses
    if isinstance(losses, Tensor) and len(losses) == batch.size:
        return _total(_per_row(losses), weight)
    raise ModelError(
        f"loss {name} must give a scalar tensor or the loss of each of the {batch.size} rows; "
        f"it gave {_describe(losses)}"
    )


def _tensor(output: Any, name: str) -> Tensor:
    if isinstance(output, Tensor):
        return output
    raise ModelError(
        f"loss '{name}' needs a model that gives one tensor; it gave {_describe(output)}. "
        "Use loss={task: loss} or loss=f(output, batch)"
    )


def _label(label: Any, name: str) -> Tensor:
    if isinstance(label, Tensor):
        return label
    if isinstance(label, Mapping):
        raise ModelError(f"loss '{name}' is for one label; for {list(label)} use {{task: loss}}")
    raise ModelError(f"loss '{name}' needs label=: the column to learn; got {_describe(label)}")


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
