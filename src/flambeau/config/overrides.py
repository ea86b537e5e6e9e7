"""Overrides on the command line: `key=value` and `~key` change or remove keys of a job file."""

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.config.settings import nearest
from flambeau.config.yaml_text import parse_yaml
from flambeau.errors import ConfigError

COMMAND_LINE = "command line"

#: Long forms of plain names in a job file, so that one key inside them can be set.
_LONG_FORM: dict[str, Callable[[str], dict[str, Any]]] = {
    "cluster": lambda name: {name: {}},
    "strategy": lambda name: {name: {}},
    "optimizer": lambda name: {"name": name},
    "schedule": lambda kind: {"kind": kind},
    "train": lambda path: {"path": path},
    "valid": lambda path: {"path": path},
    "data": lambda path: {"path": path},
    "pipeline": lambda name: {name: {}},
    "init_from": lambda run: {"run": run},
}


def override(values: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """Set dotted keys in `values` and return these keys. Values are YAML: `metrics=[auc]`.

    `~key` removes an existing key.
    """
    keys = []
    for text in overrides:
        if text.startswith("~"):
            _remove(values, text[1:])
            continue
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"{COMMAND_LINE}: {text!r} is not of the form key=value or ~key")
        _set(values, key, parse_yaml(value, f"{COMMAND_LINE}: {key}"))
        keys.append(key)
    return keys


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    inner = values
    for depth, parent in enumerate(parents):
        inner[parent] = _as_mapping(inner.get(parent), parents[: depth + 1])
        inner = inner[parent]
    inner[last] = value


def _remove(values: dict[str, Any], key: str) -> None:
    *parents, last = key.split(".")
    inner: Any = values
    for parent in parents:
        inner = inner.get(parent) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or last not in inner:
        hint = f"; {nearest(last, inner)}" if isinstance(inner, dict) and inner else ""
        raise ConfigError(f"{COMMAND_LINE}: there is no '{key}' to remove{hint}")
    del inner[last]


def _as_mapping(value: Any, path: list[str]) -> dict[str, Any]:
    if value is None or isinstance(value, dict):
        return value or {}
    if isinstance(value, str) and path[0] in _LONG_FORM:
        return _LONG_FORM[path[0]](value)
    name = ".".join(path)
    raise ConfigError(f"{COMMAND_LINE}: {name} is {value!r}, which has no parts to set")
