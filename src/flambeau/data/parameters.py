"""Parameters of `forward`: their names, and the kinds of arguments that they accept."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from flambeau.data.batch import Batch
from flambeau.data.jagged import Jagged
from flambeau.errors import ModelError


def parameters_of(forward: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters by name, in order; raise `ModelError` if there is no signature."""
    try:
        return dict(inspect.signature(forward).parameters)
    except (TypeError, ValueError) as error:
        raise ModelError(f"forward() has no signature that can be read: {error}") from None


def is_batch(annotation: Any) -> bool:
    """Return whether a parameter with this annotation receives the whole batch."""
    if isinstance(annotation, str):
        return annotation.rsplit(".", 1)[-1] == "Batch"
    return annotation is Batch


def takes_bags(annotation: Any) -> bool:
    """Return whether a parameter with this annotation accepts a `Jagged`."""
    if isinstance(annotation, str):
        return annotation.endswith("Ids") or "Jagged" in annotation
    return annotation is Jagged or Jagged in get_args(annotation)


def batch_parameter(parameters: Mapping[str, inspect.Parameter]) -> str | None:
    """Return the parameter annotated `Batch`, even if annotations are strings."""
    names = (name for name, parameter in parameters.items() if is_batch(parameter.annotation))
    return next(names, None)
