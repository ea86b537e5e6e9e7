"""Conversion of arrays to contiguous, aligned memory that kernels accept."""

from typing import Any, final

import numpy as np

Array = np.ndarray[Any, Any]


def for_kernels(array: Array, dtype: Any) -> Array:
    """Return the array as `dtype`, contiguous and aligned, copied only if necessary.

    Received buffers are read-only, and kernels would be compiled a second time for read-only
    arrays. Since no kernel writes to its inputs, such memory is passed as if it were writable.
    """
    array = np.require(array, dtype, ["C", "A"])
    return array if array.flags.writeable else np.asarray(_SameMemory(array))


@final
class _SameMemory:
    """Array interface that presents the memory of another array as writable."""

    def __init__(self, array: Array) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._owner = array
