"""Optimizer settings; the optimizer is built on the worker (or the server) that uses it."""

from typing import Any

from pydantic import field_validator

from flambeau.config.code import CodeRef
from flambeau.config.settings import Settings, nearest

DENSE_OPTIMIZERS = {
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamax": "Adamax",
    "adamw": "AdamW",
    "asgd": "ASGD",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "sgd": "SGD",
}

#: Optimizers that need the norm of a whole weight, which servers and tables cannot compute.
LAYERWISE_OPTIMIZERS = ("lamb",)

TABLE_OPTIMIZERS = (
    "adagrad",
    "adam",
    "adamw",
    "ftrl",
    "momentum",
    "nesterov",
    "rmsprop",
    "rowwise_adagrad",
    "sgd",
)


class OptimizerSpec(Settings):
    """An optimizer by name (or import path) and its arguments.

    `groups` maps patterns of parameter names (`"*.bias"`) to arguments that override `args`.
    """

    name: str = "adam"
    args: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        known = {*DENSE_OPTIMIZERS, *LAYERWISE_OPTIMIZERS, *TABLE_OPTIMIZERS}
        if name == "lbfgs":
            raise ValueError(
                "it computes the loss several times a step, which a training loop does not; use a "
                "step of your own (step=) with torch.optim.LBFGS, or another optimizer"
            )
        if ":" not in name and name not in known:
            raise ValueError(f"unknown optimizer; {nearest(name, known)}")
        return name


def for_tables(spec: OptimizerSpec | None) -> OptimizerSpec | None:
    """Return `spec`; raise `ValueError` if it cannot be used for tables."""
    if spec is not None and spec.name in LAYERWISE_OPTIMIZERS:
        raise ValueError(
            f"'{spec.name}' needs the norm of a whole weight, and tables update single rows: use "
            f"it as optimizer= and, for tables, one of {', '.join(TABLE_OPTIMIZERS)}"
        )
    if spec is not None and spec.name not in TABLE_OPTIMIZERS:
        hint = nearest(spec.name, TABLE_OPTIMIZERS)
        raise ValueError(f"'{spec.name}' is not an optimizer for tables; {hint}")
    if spec is not None and spec.groups:
        raise ValueError("groups are for parameters by name; give tables optimizers of their own")
    return spec


def optim(name: str | type, *, groups: dict[str, dict[str, Any]] | None = None, **args: Any) -> Any:
    """Make an optimizer for `fit`: `optim("adam", lr=1e-3)`, `optim(torch.optim.SGD, lr=0.1)`."""
    if isinstance(name, type):
        name = f"{name.__module__}:{name.__qualname__}"
    return OptimizerSpec(name=name, args=args, groups=groups or {})


OptimizerSetting = OptimizerSpec | CodeRef | dict[str, OptimizerSpec | CodeRef]
