"""Batches as kernels take them, whatever memory they came in."""

from typing import Any, final

import numpy as np

Array = np.ndarray[Any, Any]


def for_kernels(array: Array, dtype: Any) -> Array:
    """The array as `dtype`, contiguous and aligned, copied only if it must be.

    A received buffer is read-only, and kernels are compiled once more for arrays of that kind;
    since none writes to what it is given, such memory is passed as if it were writable.
    """
    array = np.require(array, dtype, ["C", "A"])
    return array if array.flags.writeable else np.asarray(_SameMemory(array))


@final
class _SameMemory:
    """What numpy asks for an array, answered with the memory of another."""

    def __init__(self, array: Array) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._owner = array
