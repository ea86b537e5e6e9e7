"""Assignment of columns to the parameters of `forward`."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from flambeau.config.job import RANGES
from flambeau.config.plural import number_of
from flambeau.config.settings import close_to
from flambeau.data.parameters import batch_parameter
from flambeau.errors import DataError, ModelError

#: Name of the stack of columns for a parameter that is not named.
STACKED = "inputs"
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Parameters = Mapping[str, inspect.Parameter]


def match(
    inputs: tuple[str, ...] | Mapping[str, Any] | None,
    columns: tuple[str, ...],
    positional: tuple[str, ...],
    parameters: Parameters,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the columns that are passed by position, and `{parameter: column}`.

    Stacks are referred to by their names. `inputs` is the setting, `columns` are those of the data,
    `positional` those of unnamed data.
    """
    if isinstance(inputs, Mapping):
        return (), _given(inputs, parameters)
    if inputs is not None:
        return (STACKED,), {}
    if positional:
        return _by_position(positional, parameters), {}
    return (), _by_name(columns, parameters)


def quoted(names: Iterable[str]) -> str:
    """Return names for a message, quoted."""
    return ", ".join(f"'{name}'" for name in names)


def require_column(name: str, columns: tuple[str, ...]) -> None:
    """Raise a `DataError` with a hint if the data has no such column."""
    if name in columns:
        return
    if set(name.split(":", 1)) <= set(columns):
        raise DataError(f"{name!r} is not a range of columns: {RANGES}")
    close = close_to(name, columns)
    hint = f"did you mean '{close}'? The" if close else "the"
    raise DataError(
        f"there is no column '{name}'; {hint} data has {quoted(columns)}{_delimiter_hint(columns)}"
    )


def _delimiter_hint(columns: tuple[str, ...]) -> str:
    """Return a hint if the names of all columns were read as one."""
    found = next((sign for sign in ";\t|" if sign in columns[0]), None) if columns else None
    if len(columns) != 1 or found is None:
        return ""
    return f". If that is a CSV file, give options={{'delimiter': {found!r}}} of the data"


def _given(inputs: Mapping[str, Any], parameters: Parameters) -> dict[str, str]:
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    unknown = [name for name in inputs if name not in parameters and not takes_any]
    if unknown:
        raise ModelError(f"inputs= names {quoted(unknown)}, but forward() has {quoted(parameters)}")
    return {
        name: name if not isinstance(columns, str) else columns for name, columns in inputs.items()
    }


def _by_position(columns: tuple[str, ...], parameters: Parameters) -> tuple[str, ...]:
    whole_batch = batch_parameter(parameters)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    room = [name for name in parameters if name != whole_batch]
    required = [
        name
        for name in room
        if parameters[name].default is inspect.Parameter.empty
        and parameters[name].kind not in _VARIADIC
    ]
    if whole_batch is not None and not room:
        return ()
    if not takes_any and not len(required) <= len(columns) <= len(room):
        raise ModelError(
            f"the data has {number_of(len(columns), 'input column')} ({quoted(columns)}), but "
            f"forward() takes {quoted(room)}; name them with inputs={{parameter: column}}"
        )
    return columns


def _by_name(columns: tuple[str, ...], parameters: Parameters) -> dict[str, str]:
    bound = {name: name for name in parameters if name in columns}
    whole_batch = batch_parameter(parameters)
    for name, parameter in parameters.items():
        optional = parameter.default is not parameter.empty or parameter.kind in _VARIADIC
        if name not in bound and not optional and name != whole_batch:
            raise ModelError(
                f"forward() needs '{name}', and no column has that name; the data has "
                f"{quoted(columns)}. Use inputs={{'{name}': column}}"
            )
    return bound
