"""The hash function that all packages use."""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import inlined

_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


@inlined
def mix(value: Any) -> Any:
    """Return 64 well-mixed bits of an integer."""
    bits = np.uint64(value)
    bits ^= bits >> _HALF
    bits *= _FACTOR
    bits ^= bits >> _HALF
    bits *= _FACTOR
    bits ^= bits >> _HALF
    return bits
