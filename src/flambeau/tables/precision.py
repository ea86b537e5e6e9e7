"""Half-precision values: stored in 16 bits, computed in float32."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The types in which values are stored (halves as their bits) and computed.
STORED = {"fp32": np.float32, "fp64": np.float64, "fp16": np.uint16, "bf16": np.uint16}
COMPUTED = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float32, "bf16": np.float32}


def widen(stored: Array, dtype: str) -> Array:
    """Return stored values in the type they are computed in; float32 and float64 are not copied."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if dtype == "fp16":
        return stored.view(np.float16).astype(np.float32)
    return stored


def narrow(values: Array, dtype: str) -> Array:
    """Return values in the type they are stored in, rounded to nearest (ties to even)."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    return values.astype(STORED[dtype], copy=False)
