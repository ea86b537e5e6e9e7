"""YAML as people write it: errors in one line, `1e-3` a number, no key twice."""

import re
from pathlib import Path
from typing import Any

import yaml

from flambeau.errors import ConfigError


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    values = parse_yaml(text, str(path))
    if values is None:
        raise ConfigError(f"{path} is empty; a job file needs at least 'model' and 'train'")
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}; write 'key: value' lines")
    return values


def parse_yaml(text: str, where: str) -> Any:
    """The value of `text`; an error says where in `where`."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where}{place}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from None


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key.value}' is there twice", problem_mark=key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes 1e-3 and 5.e2 for text, because they lack a point or a sign.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
