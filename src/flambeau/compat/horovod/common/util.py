"""`horovod.common.util`: functions with which scripts and tests check the installation."""

import itertools
from typing import Any

from flambeau.compat.horovod.basics import gloo_built, mpi_built


def check_extension(*names: Any) -> None:
    """Do nothing: there is no extension that could be missing."""


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Return whether a number is a power of two, as Adasum needs."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number is a power of two, as Adasum needs."""
    return check_num_rank_power_of_2(num_rank)


def split_list(items: list[Any], parts: int) -> list[list[Any]]:
    """Return a list in parts whose sizes differ by at most one, the larger ones first."""
    size, rest = divmod(len(items), parts)
    bounds = [i * size + min(i, rest) for i in range(parts + 1)]
    return [items[first:last] for first, last in itertools.pairwise(bounds)]


def is_iterable(value: Any) -> bool:
    """Return whether a value can be iterated over."""
    return hasattr(value, "__iter__")


def extension_available(name: str, verbose: bool = False) -> bool:
    """Return whether a framework is supported: only torch is."""
    return name in ("torch", "pytorch")


__all__ = ["check_extension", "extension_available", "gloo_built", "is_iterable", "mpi_built"]
