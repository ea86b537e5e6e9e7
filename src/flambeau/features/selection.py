"""Columns of an operation: by name, range or pattern."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BeforeValidator

from flambeau.config.job import columns as range_of
from flambeau.config.settings import nearest
from flambeau.errors import DataError

_PATTERN = re.compile(r"[*?\[]")
_RANGE = re.compile(r"^.*\d:.*\d$")


def _as_tuple(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


#: One name or several; each may be a range (`C1:C26`) or a pattern (`C*`).
Columns = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


def select(wanted: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted names in the order of the request, each once."""
    known = list(names)
    found = [name for item in wanted for name in _selected(item, known)]
    return tuple(dict.fromkeys(found))


def _selected(item: str, known: Sequence[str]) -> list[str]:
    if item in known:
        return [item]
    if _RANGE.match(item):
        return [name for each in range_of(item) for name in _selected(each, known)]
    if _PATTERN.search(item):
        matching = [name for name in known if fnmatchcase(name, item)]
        if matching:
            return matching
    raise DataError(f"there is no column '{item}'; {nearest(item, known)}")
