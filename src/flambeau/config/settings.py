"""Base class of all settings: frozen, keyword-only, with one error message line per mistake."""

import difflib
import re
from collections.abc import Iterable
from typing import Any, Self

import pydantic
from pydantic import ConfigDict
from pydantic_core import ErrorDetails

from flambeau.errors import ConfigError


class Settings(pydantic.BaseModel):
    """Immutable settings. An invalid field raises `ConfigError` with field, value and remedy."""

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
        """Return settings from `values` (a dict as read from a file); errors start with `where`."""
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            raise ConfigError(explain(error, cls, where)) from None


def differences(first: Settings, second: Settings) -> str:
    """Return the fields in which two settings of one class differ, with both values, as text."""
    pairs = (
        (name, getattr(first, name), getattr(second, name)) for name in type(first).model_fields
    )
    return ", ".join(f"{name}={one!r} and {other!r}" for name, one, other in pairs if one != other)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as `did you mean 'epochs'?`, or else the list of known names."""
    names = sorted(known)
    close = close_to(name, names)
    return f"did you mean '{close}'?" if close else f"known: {', '.join(names)}"


def close_to(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar, ignoring case, or None."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def explain(error: pydantic.ValidationError, root: type[Settings], where: str = "") -> str:
    """Return an error message with one line per mistake."""
    prefix = f"{where}: " if where else ""
    return "\n".join(prefix + line for _, line in mistakes(error, root))


def mistakes(error: pydantic.ValidationError, root: type[Settings]) -> list[tuple[str, str]]:
    """Return the dotted key and one line of text of each mistake."""
    found: dict[_Location, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        location = tuple(part for part in item["loc"] if _is_key(part))
        found.setdefault(location, []).append(item)
    return [
        (".".join(map(str, location)), _line(location, items, root))
        for location, items in found.items()
        if not _has_inner(location, found)
    ]


_Location = tuple[int | str, ...]


def _has_inner(location: _Location, found: Iterable[_Location]) -> bool:
    """Return whether a mistake is nested deeper: then this one is from a union's other arms."""
    depth = len(location)
    return any(len(other) > depth and other[:depth] == location for other in found)


def _line(location: _Location, items: list[ErrorDetails], root: type[Settings]) -> str:
    name, first = ".".join(map(str, location)), items[0]
    if first["type"] == "extra_forbidden":
        owner = _owner(root, location[:-1])
        return f"unknown key '{name}'; {nearest(str(location[-1]), owner.model_fields)}"
    if first["type"] == "missing":
        return f"'{name}' is missing"
    texts = list(dict.fromkeys(_text(item["msg"]) for item in items))
    message = " or ".join([texts[0], *(text.removeprefix(_SHOULD_BE) for text in texts[1:])])
    return f"{name}={first['input']!r}: {message}{_hint(first)}" if name else message


def _hint(item: ErrorDetails) -> str:
    """Return a hint with the most similar of the accepted words, or an empty string."""
    words = re.findall(r"'(\w+)'", item.get("ctx", {}).get("expected", ""))
    close = close_to(str(item["input"]), words)
    return f"; did you mean '{close}'?" if close else ""


_SHOULD_BE = "Input should be "


def _text(message: str) -> str:
    """Return a message from pydantic in the terms of a job file."""
    message = re.sub(" or instance of .*", "", message.removeprefix("Value error, "))
    return message.replace("valid tuple", "valid list").replace("dictionary", "mapping")


def _is_key(part: object) -> bool:
    """Return whether a part of pydantic's location is a user's key, not the name of a union arm."""
    if isinstance(part, int):
        return True
    text = str(part)
    return not (text[:1].isupper() or "[" in text or text in _UNION_ARMS)


_UNION_ARMS = {"str", "int", "float", "bool", "tuple", "list", "dict", "none"}


def _owner(root: type[Settings], location: _Location) -> type[Settings]:
    """Return the settings class that contains the field at `location`."""
    owner = root
    for part in location:
        field = owner.model_fields.get(str(part))
        inner = _settings_in(field.annotation) if field else None
        if inner is None:
            return owner
        owner = inner
    return owner


def _settings_in(annotation: Any) -> type[Settings] | None:
    """Return the first settings class in an annotation, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    inside = map(_settings_in, getattr(annotation, "__args__", ()))
    return next((found for found in inside if found is not None), None)
