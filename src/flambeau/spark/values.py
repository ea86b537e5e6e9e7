"""Conversion of params to the form in which they are stored, which is JSON where possible."""

from collections.abc import Mapping
from typing import Any

import torch

from flambeau.config import AllReduce, Hybrid, OptimizerSpec, ParameterServer, optim
from flambeau.config.choices import StrategyChoice
from flambeau.errors import ConfigError

#: Meaning of a model's outputs by the torch loss that it was trained with.
_MEANINGS = {
    "BCELoss": "bce_prob",
    "BCEWithLogitsLoss": "bce",
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll",
}
_STRATEGIES: dict[str, type[AllReduce] | type[ParameterServer] | type[Hybrid]] = {
    "all_reduce": AllReduce,
    "parameter_server": ParameterServer,
    "hybrid": Hybrid,
}


def as_it_is(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def text(value: Any) -> str:
    """Return a text that is not empty; raise `TypeError` for any other value."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not a name")
    return value


def texts(value: Any) -> list[str]:
    """Return a list of texts."""
    if isinstance(value, str):
        raise TypeError(f"{value!r} is one text; give a list")
    return [text(item) for item in value]


def whole(value: Any) -> int:
    """Return a whole number of at least 0."""
    if isinstance(value, bool) or int(value) != value or value < 0:
        raise TypeError(f"{value!r} is not a whole number of at least 0")
    return int(value)


def count(value: Any) -> int:
    """Return a whole number of at least 1."""
    if whole(value) < 1:
        raise TypeError(f"{value!r}: give at least 1")
    return int(value)


def number(value: Any) -> float:
    """Return a number."""
    if isinstance(value, bool | str):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def positive(value: Any) -> float:
    """Return a number above 0."""
    if number(value) <= 0:
        raise TypeError(f"{value!r} is not above 0")
    return float(value)


def fraction(value: Any) -> float:
    """Return a share from 0 to below 1."""
    if not 0 <= number(value) < 1:
        raise TypeError(f"{value!r}: give a share from 0 to below 1")
    return float(value)


def mapping(value: Any) -> dict[str, Any]:
    """Return a dict of values by name."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a dict")
    return dict(value)


def shape(value: Any) -> list[int]:
    """Return the shape of one row."""
    return [count(size) for size in value]


def columns(value: Any) -> str | list[str] | dict[str, Any]:
    """Return a column, several columns, or columns by name."""
    if isinstance(value, Mapping):
        return {text(name): columns(item) for name, item in value.items()}
    return text(value) if isinstance(value, str) else texts(value)


def strategy(value: Any) -> dict[str, Any]:
    """Return a strategy's settings with its `kind`; a name stands for its defaults."""
    if isinstance(value, str):
        value = StrategyChoice.parse(value, "strategy").chosen
    if isinstance(value, AllReduce | ParameterServer | Hybrid):
        return value.model_dump(mode="json", exclude_unset=True) | {"kind": value.kind}
    return mapping(value)


def build_strategy(kept: Mapping[str, Any]) -> AllReduce | ParameterServer | Hybrid:
    """Return the strategy from the result of `strategy`."""
    kind = _STRATEGIES.get(kept.get("kind", ""))
    if kind is None:
        raise ConfigError(f"strategy={dict(kept)}: 'kind' must be one of {', '.join(_STRATEGIES)}")
    return kind.parse(dict(kept), "strategy")


def optimizer(value: Any) -> Any:
    """Return an optimizer's name, its spec as a dict, or a function of the parameters."""
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer):
        value = optim(value)
    return value.model_dump(mode="json") if isinstance(value, OptimizerSpec) else value


def build_optimizer(kept: Any, learning_rate: float | None) -> Any:
    """Return the optimizer from the result of `optimizer`, with this learning rate."""
    if isinstance(kept, str):
        kept = {"name": kept}
    if not isinstance(kept, Mapping):
        if learning_rate is not None and kept is not None:
            raise ConfigError(
                "learningRate is for optimizers by name; give it inside your function"
            )
        return kept
    spec = OptimizerSpec.parse(dict(kept), "optimizer")
    if learning_rate is None:
        return spec
    return spec.model_copy(update={"args": {**spec.args, "lr": learning_rate}})


def initial(value: Any) -> str:
    """Return the path of a model or run."""
    return str(getattr(value, "modelFolder", value))


def loss(value: Any) -> Any:
    """Return a loss's name, a function, a torch loss, or one of these for each task."""
    if isinstance(value, type):
        raise TypeError(f"{value.__name__} is a class: give {value.__name__}()")
    return dict(value) if isinstance(value, Mapping) else value


def meaning(kept: Any) -> str | dict[str, str | None] | None:
    """Return the meaning of outputs, given by the loss; None: they are plain values."""
    if isinstance(kept, Mapping):
        return {task: _meaning(item) for task, item in kept.items()}
    return _meaning(kept)


def _meaning(kept: Any) -> str | None:
    if isinstance(kept, torch.nn.Module):
        return _MEANINGS.get(type(kept).__name__)
    return kept if isinstance(kept, str) else getattr(kept, "outputs", None)
