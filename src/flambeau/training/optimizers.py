"""Dense optimizers, built from their settings."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from flambeau.config.code import CodeRef
from flambeau.config.optimizer import (
    DENSE_OPTIMIZERS,
    LAYERWISE_OPTIMIZERS,
    OptimizerSetting,
    OptimizerSpec,
)
from flambeau.config.settings import nearest
from flambeau.embeddings.attach import has_tables
from flambeau.errors import ModelError
from flambeau.training.lamb import LAMB

LoadCode = Callable[[CodeRef], Any]
_Named = dict[str, nn.Parameter]

_FUSED = (torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW)
_EXCLUDES_FUSED = {
    *("fused", "foreach", "capturable", "differentiable", "maximize"),
    # The first update is not dampened, so momentum that starts as zeros would differ.
    "dampening",
}


def build_optimizers(
    setting: OptimizerSetting, model: nn.Module, load_code: LoadCode
) -> dict[str, Optimizer]:
    """Build optimizers by name: one named `""`, or one per entry of `{submodule: setting}`.

    They get the parameters that require gradients. `groups` patterns are matched with the names of
    `model.named_parameters()`; the first match decides.
    """
    if not isinstance(setting, Mapping):
        parameters = _trainable(model, "", may_be_none=has_tables(model))
        return {"": _build(setting, parameters, _has_sparse_gradients(model), load_code)}
    parts = {name: _trainable(_submodule(model, name), name) for name in setting}
    _check_complete(model, parts)
    return {
        name: _build(spec, parts[name], _has_sparse_gradients(model), load_code)
        for name, spec in setting.items()
    }


def optimizer_class(setting: OptimizerSetting, load_code: LoadCode) -> Callable[..., Any]:
    """Return a function that builds an optimizer from parameter groups with all options.

    A user's function is called once, with a dummy parameter, to learn the class it builds.
    """
    assert not isinstance(setting, Mapping)
    if isinstance(setting, CodeRef):
        made = load_code(setting)([nn.Parameter(torch.zeros(1))])
        return type(_checked(made, setting.name))
    return _optimizer_class(setting, load_code)


def scale_learning_rates(optimizers: Mapping[str, Optimizer], workers: int, mode: str) -> None:
    """Multiply all learning rates by `workers` ("linear"), its root ("sqrt"), or 1 ("none").

    Call it before schedules are built, which use the learning rate they find.
    """
    factor = {"none": 1.0, "linear": float(workers), "sqrt": math.sqrt(workers)}[mode]
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor


def _trainable(module: nn.Module, name: str, *, may_be_none: bool = False) -> _Named:
    prefix = f"{name}." if name else ""
    parameters = {
        prefix + key: value for key, value in module.named_parameters() if value.requires_grad
    }
    if not parameters and may_be_none:
        # Its tables have optimizers of their own; schedules need a dense one to attach to.
        return {"": nn.Parameter(torch.empty(0))}
    if not parameters:
        where = f"submodule '{name}'" if name else "the model"
        raise ModelError(f"{where} has no parameter that requires gradients: nothing to train")
    return parameters


def _submodule(model: nn.Module, name: str) -> nn.Module:
    known: dict[str, nn.Module] = dict(model.named_modules())
    if name and name in known:
        return known[name]
    children = [child for child, _ in model.named_children()]
    raise ModelError(
        f"optimizer={{'{name}': ...}}: the model has no submodule '{name}'; "
        f"{nearest(name, children)}"
    )


def _check_complete(model: nn.Module, parts: Mapping[str, _Named]) -> None:
    """Raise `ModelError` for a parameter without optimizer, which would silently not be trained."""
    taken = {id(value) for part in parts.values() for value in part.values()}
    left = [name for name, value in _trainable(model, "").items() if id(value) not in taken]
    if left:
        raise ModelError(
            f"no optimizer has the parameter '{left[0]}' ({len(left)} in all): name its submodule "
            "in optimizer=, or freeze it with requires_grad_(False)"
        )


def _build(
    setting: OptimizerSpec | CodeRef, parameters: _Named, sparse: bool, load_code: LoadCode
) -> Optimizer:
    if isinstance(setting, CodeRef):
        return _checked(load_code(setting)(list(parameters.values())), setting.name)
    kind = _optimizer_class(setting, load_code)
    for args in (setting.args, *setting.groups.values()):
        _check_arguments(setting.name, kind, args)
    args = dict(setting.args)
    if _can_fuse(kind, setting, parameters) and not sparse:
        args["fused"] = True
    groups = _grouped(setting, parameters)
    try:
        built = kind(groups, **args)
    except (TypeError, RuntimeError, ValueError) as error:
        raise ModelError(f"optimizer '{setting.name}': {error}") from error
    optimizer = _checked(built, setting.name)
    _start_momentum(optimizer)
    return optimizer


def _optimizer_class(spec: OptimizerSpec, load_code: LoadCode) -> Callable[..., Any]:
    if spec.name in DENSE_OPTIMIZERS:
        return getattr(torch.optim, DENSE_OPTIMIZERS[spec.name])  # type: ignore[no-any-return]
    if spec.name == "lamb":
        return LAMB
    if ":" not in spec.name:
        hint = ", ".join(sorted((*DENSE_OPTIMIZERS, *LAYERWISE_OPTIMIZERS)))
        raise ModelError(f"optimizer '{spec.name}' is for tables only; for the rest: {hint}")
    kind = load_code(CodeRef(path=spec.name))
    if not callable(kind):
        raise ModelError(f"optimizer '{spec.name}' is not a class, but {kind!r}")
    return kind  # type: ignore[no-any-return]


def _check_arguments(name: str, kind: Callable[..., Any], args: Iterable[str]) -> None:
    signature = list(inspect.signature(kind).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
        return
    known = [parameter.name for parameter in signature[1:]]
    for argument in args:
        if argument not in known:
            hint = nearest(argument, known)
            raise ModelError(f"optimizer '{name}' takes no argument '{argument}'; {hint}")


def _grouped(spec: OptimizerSpec, parameters: _Named) -> list[dict[str, Any]]:
    left = dict(parameters)
    groups = []
    for pattern, args in spec.groups.items():
        names = [name for name in left if fnmatchcase(name, pattern)]
        if not names:
            raise ModelError(
                f"optimizer '{spec.name}': no parameter for the group '{pattern}' (of those that "
                f"earlier groups leave); names are such as '{next(iter(parameters))}'"
            )
        groups.append({"params": [left.pop(name) for name in names], **args})
    rest = [{"params": list(left.values())}] if left else []
    return rest + groups


def _can_fuse(kind: object, spec: OptimizerSpec, parameters: _Named) -> bool:
    """Return whether torch's fused CPU kernels apply: the same result in about half the time."""
    given = {*spec.args, *(key for args in spec.groups.values() for key in args)}
    return (
        kind in _FUSED
        and not given & _EXCLUDES_FUSED
        and all(
            value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64)
            for value in parameters.values()
        )
    )


def _start_momentum(optimizer: Optimizer) -> None:
    # Fused SGD fails when some parameters get their first gradient later than others.
    groups = optimizer.param_groups if type(optimizer) is torch.optim.SGD else []
    for group in groups:
        if group["fused"] and group["momentum"] and not group["dampening"]:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _has_sparse_gradients(model: nn.Module) -> bool:
    """Return whether a module has sparse gradients, which the fused kernels do not support."""
    return any(getattr(module, "sparse", False) is True for module in model.modules())


def _checked(optimizer: object, name: str) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer
    raise ModelError(
        f"optimizer '{name}' gave a {type(optimizer).__name__}, not a torch.optim.Optimizer"
    )
