"""Detection of the kind of data that the user gave."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flambeau.config import (
    FileData,
)


def takes_an_argument(function: Callable[..., Any]) -> bool:
    """Return whether a function has a required argument: `f(shard)`, and not `f()`."""
    return any(
        parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in inspect.signature(function).parameters.values()
    )


def is_paths(data: Any) -> bool:
    """Return whether it is a path, or a list of paths."""
    several = data if isinstance(data, list | tuple) and data else [data]
    return all(isinstance(each, str | Path) for each in several)


def as_files(data: Any) -> FileData:
    """Return the files that a path, or a list of paths, refers to."""
    several = isinstance(data, list | tuple)
    return FileData(path=tuple(map(str, data)) if several else str(data))


def files(
    path: str | Path | Sequence[str | Path],
    format: str | None = None,
    *,
    share: tuple[float, float] | None = None,
    **options: Any,
) -> FileData:
    """Return files as data, with their format, unless it can be detected, and its options.

    `fb.files("u.data", format="tsv", names=["user", "item", "rating", "time"])`

    `share=(0, 0.8)` stands for the first four fifths of the rows.
    """
    found = as_files(path)
    return FileData(path=found.path, format=format, options=options, share=share)


def is_arrays(data: Any) -> bool:
    """Return whether it is an array, tensor, tuple, list or dict; torch need not be loaded."""
    if isinstance(data, tuple | list | Mapping):
        return True
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (numpy is not None and isinstance(data, numpy.ndarray)) or (
        torch is not None and isinstance(data, torch.Tensor)
    )
