"""Conversion of columns of few values to Arrow, all columns of one kind at once."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

#: With more rows, converting columns one by one is not slower.
FEW_ROWS = 1 << 10
_INT64 = range(-(1 << 63), 1 << 63)
#: Python types of the values of each kind of columns, and the Arrow type for them.
_KINDS: dict[str, tuple[frozenset[type], pa.DataType]] = {
    "floats": (frozenset({float, int, type(None)}), pa.float64()),
    "integers": (frozenset({int, type(None)}), pa.int64()),
    "texts": (frozenset({str, type(None)}), pa.string()),
}


def few_rows_together(columns: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, pa.Array]:
    """Return Arrow arrays of columns that are lists of few plain values of the kind in `types`.

    They have the types and values that they would have if they were converted one by one.
    """
    groups: dict[str, list[str]] = {}
    for name, values in columns.items():
        kind = types.get(name, "")
        if type(values) is list and 0 < len(values) <= FEW_ROWS and _are_plain(values, kind):
            groups.setdefault(kind, []).append(name)
    found: dict[str, pa.Array] = {}
    for kind, names in groups.items():
        if len({len(columns[name]) for name in names}) == 1:
            found |= _converted({name: columns[name] for name in names}, kind)
    return found


def _are_plain(values: list[Any], kind: str) -> bool:
    if kind not in _KINDS or not _KINDS[kind][0].issuperset(map(type, values)):
        return False
    return kind == "texts" or all(value in _INT64 for value in values if type(value) is int)


def _converted(columns: Mapping[str, list[Any]], kind: str) -> dict[str, pa.Array]:
    flat = [value for values in columns.values() for value in values]
    if kind == "floats":
        flat = [None if value is None else float(value) for value in flat]
    rows = len(flat) // len(columns)
    whole = pa.array(flat, _KINDS[kind][1])
    return {name: whole.slice(place * rows, rows) for place, name in enumerate(columns)}
