"""The parameters of `forward`: what they are called, and what they want."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from flambeau.data.batch import Batch
from flambeau.data.jagged import Jagged
from flambeau.errors import ModelError


def parameters_of(forward: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """By name, in their order."""
    try:
        return dict(inspect.signature(forward).parameters)
    except (TypeError, ValueError) as error:
        raise ModelError(f"forward() has no signature that can be read: {error}") from None


def is_batch(annotation: Any) -> bool:
    """Whether a parameter with this annotation is given the whole batch."""
    if isinstance(annotation, str):
        return annotation.rsplit(".", 1)[-1] == "Batch"
    return annotation is Batch


def takes_bags(annotation: Any) -> bool:
    """Whether a parameter with this annotation may be given a `Jagged`."""
    if isinstance(annotation, str):
        return annotation.endswith("Ids") or "Jagged" in annotation
    return annotation is Jagged or Jagged in get_args(annotation)


def batch_parameter(parameters: Mapping[str, inspect.Parameter]) -> str | None:
    """The parameter annotated `Batch`, also when annotations are strings."""
    names = (name for name, parameter in parameters.items() if is_batch(parameter.annotation))
    return next(names, None)
