"""Flattening and reassembly of the arguments of forward(), by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from flambeau.data.batch import Batch
from flambeau.data.jagged import Jagged
from flambeau.errors import ModelError

Leaf = Tensor | Jagged

#: Exceptions that models raise for arguments that they do not accept.
FAULTS = (RuntimeError, TypeError, LookupError, AttributeError, ValueError, AssertionError)


@final
@dataclass(frozen=True)
class Arguments:
    """Structure of the arguments: `positional` and `named` contain names of values.

    A whole batch is represented by the names of its columns.
    """

    positional: tuple[str | tuple[str, ...], ...]
    named: dict[str, str | tuple[str, ...]]

    def together(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and named arguments with these values."""
        positional = [_joined(names, values) for names in self.positional]
        return positional, {key: _joined(names, values) for key, names in self.named.items()}


def take_apart(
    positional: Sequence[Any], named: Mapping[str, Any], parameters: Sequence[str]
) -> tuple[Arguments, dict[str, Leaf]]:
    """Return the structure of the arguments, and their values by name.

    `parameters` are the names of the parameters of forward().
    """
    values: dict[str, Leaf] = {}
    names = [*parameters, *(f"input{number}" for number in range(len(positional)))]
    places = tuple(
        _apart(name, argument, values) for name, argument in zip(names, positional, strict=False)
    )
    keys = {key: _apart(key, argument, values) for key, argument in named.items()}
    return Arguments(places, keys), values


def _apart(name: str, argument: Any, values: dict[str, Leaf]) -> str | tuple[str, ...]:
    if isinstance(argument, Batch):
        columns = {
            column: value
            for column, value in argument.columns.items()
            if isinstance(value, Tensor | Jagged)
        }
        for column, value in columns.items():
            _add(column, value, values)
        return tuple(columns)
    if not isinstance(argument, Tensor | Jagged):
        raise ModelError(f"forward() is given a {type(argument).__name__} as '{name}'")
    _add(name, argument, values)
    return name


def _add(name: str, value: Leaf, values: dict[str, Leaf]) -> None:
    if name in values and values[name] is not value:
        raise ModelError(f"two inputs of the model are called '{name}'; rename a column")
    values[name] = value


def _joined(names: str | tuple[str, ...], values: Mapping[str, Any]) -> Any:
    if isinstance(names, str):
        return values[names]
    columns = {name: values[name] for name in names}
    sizes = [len(value) for value in columns.values() if isinstance(value, Tensor)]
    return Batch(columns, sizes[0] if sizes else 0)
