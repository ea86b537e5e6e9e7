"""YAML parsing with one-line errors, `1e-3` as a number, and no duplicate keys."""

import re
from pathlib import Path
from typing import Any

import yaml

from flambeau.errors import ConfigError


def read_yaml(path: Path, needs: str = "'model' and 'train'") -> dict[str, Any]:
    """Return the mapping in a file; raise an error that names what it `needs` if it is empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    values = parse_yaml(text, str(path))
    if values is None:
        raise ConfigError(f"{path} is empty; it needs at least {needs}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}; write 'key: value' lines")
    return values


def parse_yaml(text: str, where: str) -> Any:
    """Return the value of `text`; errors give the position in `where`, the name of the source."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where}{place}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from None


_BOOLEAN = "tag:yaml.org,2002:bool"


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
            if key.tag == _BOOLEAN:  # YAML 1.1 reads `on`, the key of a join, as true
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 1e-3 and 5.e2 as text, because they lack a decimal point or a sign.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
