"""Checks that all files of a data set have the same columns."""

from collections import Counter

import pyarrow as pa

from flambeau.data.sources.urls import shown
from flambeau.errors import DataError


def require_unique_names(names: list[str], path: str, hint: str = "") -> None:
    """Raise `DataError` if two columns have the same name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{shown(path)} has more than one column named {repeated[0]!r}{hint}")


def require_same_schema(first: pa.Schema, first_path: str, schema: pa.Schema, path: str) -> None:
    """Raise `DataError` naming the first column in which `path` differs from `first_path`."""
    first_path, path = shown(first_path), shown(path)
    for field in first:
        if field.name not in schema.names:
            raise DataError(f"{path} has no column {field.name!r}, which {first_path} has")
        found = schema.field(field.name).type
        if found != field.type:
            raise DataError(
                f"column {field.name!r} is {found} in {path} but {field.type} in {first_path}"
            )
    extra = [name for name in schema.names if name not in first.names]
    if extra:
        raise DataError(f"{path} has a column {extra[0]!r}, which {first_path} does not have")
