"""Column names for unnamed data: `(x, y)`, `((x1, x2), y)`, a single `x`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Named:
    """Values by column name; `inputs` and `labels` are empty if the names are the user's."""

    columns: dict[str, Any]
    inputs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def name_columns(item: Any) -> Named:
    """Return an item, a batch or a set of arrays by column name.

    Inputs are `x` (several: `x0`, `x1`, ...), labels `y` (`y0`, ...). The last of several parts is
    the label; a mapping keeps its own names.
    """
    if isinstance(item, Mapping):
        return Named({str(name): value for name, value in item.items()})
    if not isinstance(item, tuple | list):
        return Named({"x": item}, ("x",))
    if len(item) == 1:
        return _named(_group(item[0]), [])
    inputs = _group(item[0]) if len(item) == 2 else list(item[:-1])
    return _named(inputs, _group(item[-1]))


def _named(inputs: list[Any], labels: list[Any]) -> Named:
    xs, ys = _numbered("x", inputs), _numbered("y", labels)
    return Named({**xs, **ys}, tuple(xs), tuple(ys))


def _numbered(stem: str, values: list[Any]) -> dict[str, Any]:
    if len(values) == 1:
        return {stem: values[0]}
    return {f"{stem}{number}": value for number, value in enumerate(values)}


def _group(value: Any) -> list[Any]:
    """Return the members of a tuple of arrays; anything else (a list of numbers) is one value."""
    if isinstance(value, tuple | list) and value and all(map(_is_array, value)):
        return list(value)
    return [value]


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)
