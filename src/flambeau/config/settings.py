"""The base of all settings: frozen, keyword-only, and wrong values explained in one line each."""

import difflib
from collections.abc import Iterable
from typing import Any, Self

import pydantic
from pydantic import ConfigDict

from flambeau.errors import ConfigError


class Settings(pydantic.BaseModel):
    """Immutable settings. A wrong field raises `ConfigError` naming field, value and remedy."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=False, protected_namespaces=()
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            raise ConfigError(explain(error, type(self))) from None

    # Tells pydantic that nested settings need not go through __init__ one by one, so that all
    # mistakes of a job file are reported together, each with its full path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def parse(cls, values: Any, where: str = "") -> Self:
        """`values` (a dict as from a file) as settings; errors start with `where`."""
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            raise ConfigError(explain(error, cls, where)) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `did you mean 'epochs'?`, or the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}"


def explain(error: pydantic.ValidationError, root: type[Settings], where: str = "") -> str:
    """One line for each thing that is wrong."""
    lines = []
    for item in error.errors(include_url=False):
        location = [part for part in item["loc"] if _is_key(part)]
        name = ".".join(str(part) for part in location) or root.__name__
        if item["type"] == "extra_forbidden":
            owner = _owner(root, location[:-1])
            lines.append(f"unknown key '{name}'; {nearest(str(location[-1]), owner.model_fields)}")
        elif item["type"] == "missing":
            lines.append(f"'{name}' is missing")
        else:
            message = item["msg"].removeprefix("Value error, ")
            lines.append(f"{name}={item['input']!r}: {message}")
    prefix = f"{where}: " if where else ""
    unique = list(dict.fromkeys(lines))
    return "\n".join(prefix + line for line in unique)


def _is_key(part: object) -> bool:
    """Whether a part of pydantic's location is a key the user wrote, not a name of a union arm."""
    if isinstance(part, int):
        return True
    text = str(part)
    return not (text[:1].isupper() or "[" in text or text in _UNION_ARMS)


_UNION_ARMS = {"str", "int", "float", "bool", "tuple", "list", "dict", "none"}


def _owner(root: type[Settings], location: list[Any]) -> type[Settings]:
    """The settings class that holds the field at `location`."""
    owner = root
    for part in location:
        field = owner.model_fields.get(str(part))
        inner = _settings_in(field.annotation) if field else None
        if inner is None:
            return owner
        owner = inner
    return owner


def _settings_in(annotation: Any) -> type[Settings] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, Settings):
            return candidate
    return None
