"""Parsers of operations, splits and pipelines in a features file: `{name: {arguments}}`."""

import inspect
from collections.abc import Mapping
from typing import Any

from flambeau.config.settings import nearest
from flambeau.config.shorthands import data_form
from flambeau.errors import ConfigError
from flambeau.features.criteo import criteo
from flambeau.features.operation import Operation
from flambeau.features.pipeline import Pipeline
from flambeau.features.splits import ByFile, ByHash, ByRatio, ByTime, Split

_PIPELINES = {"criteo": criteo}
_SPLITS: dict[str, type[Split]] = {each.kind: each for each in (ByFile, ByHash, ByRatio, ByTime)}


def operation(value: Any, where: str) -> Operation:
    """Return the operation of `{categorify: {columns: [user], min_count: 2}}`.

    The arguments may be columns alone: `{log: "I1:I13"}`.
    """
    known = Operation.kinds()
    name, arguments = _name_and_arguments(value, where, known, "log: [price]")
    where = f"{where} ({name})"
    if isinstance(arguments, str | list) and "columns" in known[name].model_fields:
        arguments = {"columns": arguments}
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"{where}: write its arguments as 'name: value'")
    arguments = dict(arguments)
    if name == "join" and "table" in arguments:
        arguments["table"] = _table(arguments["table"], where)
    return known[name].parse(arguments, where)


def split(value: Any, where: str) -> Split:
    """Return the split of `{by_time: {column: time, valid: 0.1, test: 0.1}}`."""
    name, arguments = _name_and_arguments(value, where, _SPLITS, "by_ratio: {valid: 0.1}")
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"{where}: write the arguments of {name} as 'name: value'")
    return _SPLITS[name].parse(dict(arguments), f"{where} ({name})")


def pipeline(value: Any, where: str) -> Pipeline:
    """Return the built-in pipeline that `criteo`, or `{criteo: {min_count: 10}}`, names."""
    name, arguments = _name_and_arguments(value, where, _PIPELINES, "criteo: {min_count: 10}")
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"{where}: write the arguments of {name} as 'name: value'")
    make = _PIPELINES[name]
    known = inspect.signature(make).parameters
    for argument in arguments:
        if argument not in known:
            hint = nearest(str(argument), known)
            raise ConfigError(f"{where}: {name} has no argument '{argument}'; {hint}")
    try:
        return make(**arguments)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where} ({name}): {error}") from None


def _name_and_arguments(
    value: Any, where: str, known: Mapping[str, Any], example: str
) -> tuple[str, Any]:
    """Return the only name in a mapping, or a name without arguments, and the arguments."""
    if isinstance(value, str):
        value = {value: None}
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ConfigError(f"{where}: write one name and its arguments, such as '{example}'")
    ((name, arguments),) = value.items()
    if name not in known:
        raise ConfigError(f"{where}: there is no '{name}'; {nearest(str(name), known)}")
    return str(name), {} if arguments is None else arguments


def _table(value: Any, where: str) -> Any:
    """Return the files of a table: a path, or `{path:, format:, options:}`."""
    try:
        form = data_form(value)
    except ValueError as error:
        raise ConfigError(f"{where}: table: {error}") from None
    if "code" in form or "path" not in form:
        raise ConfigError(f"{where}: table: write a path, or {{path:, format:, options:}}")
    return {"kind": "files", **form}
