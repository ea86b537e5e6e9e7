"""Expansion of the short forms of a job file to settings."""

import os
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag

from flambeau.config.code import CodeRef
from flambeau.config.data import DatasetData, FileData
from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.schedule import Schedule
from flambeau.config.settings import Settings

_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_code(text: Any) -> bool:
    """Return whether `text` is `module:name` and not the path of an existing file."""
    return isinstance(text, str) and bool(_CODE.fullmatch(text)) and not os.path.exists(text)


def code_form(value: Any) -> Any:
    """Expand `module:name`, or `{path: module:name, args: {...}}`, which calls it with `args`."""
    if isinstance(value, str):
        value = {"path": value}
    if not isinstance(value, dict | CodeRef):
        raise ValueError("write module:name")
    if isinstance(value, dict):
        if not is_code(value.get("path")):
            raise ValueError("write module:name")
        value = {"call": "args" in value, **value}
    return value


def data_form(value: Any) -> Any:
    """Expand a path, a list of paths, `module:function`, or `{path:, format:, options:}`."""
    if isinstance(value, str | list):
        value = {"path": value}
    if not isinstance(value, dict | FileData | DatasetData):
        raise ValueError("write a path, a list of paths, module:function, or {path:, format:}")
    if isinstance(value, dict) and is_code(value.get("path")):
        given = dict(value)
        code = {"path": given.pop("path"), "args": given.pop("options", {}), "call": True}
        return {"kind": "dataset", "code": code, **given}
    return value


def optimizer_form(value: Any) -> Any:
    """Expand a name, `{name:, lr:, ..., groups:}`, or several of these by submodule."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise ValueError("write a name, {name: sgd, lr: 0.1}, or {submodule: optimizer}")
    if _is_several(value):
        return {name: optimizer_form(item) for name, item in value.items()}
    if isinstance(value.get("args"), dict):
        return value
    own = {key: item for key, item in value.items() if key in ("name", "groups")}
    return {**own, "args": {key: item for key, item in value.items() if key not in own}}


def table_optimizer_form(value: Any) -> Any:
    """Expand a name, or `{name:, lr:, ...}`."""
    if value is not None and not isinstance(value, str | dict):
        raise ValueError("write a name, or {name: adagrad, lr: 0.05}")
    return None if value is None else optimizer_form(value)


def _is_several(value: dict[str, Any]) -> bool:
    submodules = "name" not in value and "args" not in value and set(value) - {"groups"}
    return bool(submodules) and all(isinstance(item, str | dict) for item in value.values())


def _schedule_form(value: Any) -> Any:
    if isinstance(value, str) and not is_code(value):
        return {"kind": value}
    return value if isinstance(value, dict) and "path" not in value else code_form(value)


def loss_form(value: Any) -> Any:
    """Expand a loss by name or `module:function`, or one per task."""
    if isinstance(value, dict) and "path" not in value:
        return {task: loss_form(item) for task, item in value.items()}
    if isinstance(value, str) and not is_code(value):
        return value
    try:
        return CodeRef.parse(code_form(value))
    except ValueError:
        raise ValueError("write a loss's name, module:function, or {task: loss}") from None


# Tags begin with a capital letter, like class names, so that `explain` omits them from keys.
Code = Annotated[CodeRef, BeforeValidator(code_form)]
Loss = Annotated[Any, BeforeValidator(loss_form)]
Data = Annotated[
    Annotated[FileData, Tag("FileData")] | Annotated[DatasetData, Tag("DatasetData")],
    Discriminator(lambda value: _arm(value, "code", "DatasetData", "FileData")),
    BeforeValidator(data_form),
]
Optimizer = Annotated[
    Annotated[OptimizerSpec, Tag("OptimizerSpec")]
    | Annotated[dict[str, OptimizerSpec], Tag("Several")],
    Discriminator(lambda value: _arm(value, "args", "OptimizerSpec", "Several", "name")),
    BeforeValidator(optimizer_form),
]
TableOptimizer = Annotated[OptimizerSpec | None, BeforeValidator(table_optimizer_form)]
LearningRate = Annotated[
    Annotated[Schedule, Tag("Schedule")] | Annotated[CodeRef, Tag("CodeRef")],
    Discriminator(lambda value: _arm(value, "path", "CodeRef", "Schedule")),
    BeforeValidator(_schedule_form),
]


def _arm(value: Any, key: str, yes: str, no: str, or_key: str | None = None) -> str:
    """Return the tag of one of two forms, decided by a key that only one of them has."""
    if isinstance(value, Settings):
        return type(value).__name__
    return yes if key in value or or_key in value else no
