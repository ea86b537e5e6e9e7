"""Half-precision values: stored as 16 bits, computed with as float32."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: How values of each type are stored (halves as their bits), and what they are computed with.
STORED = {"fp32": np.float32, "fp64": np.float64, "fp16": np.uint16, "bf16": np.uint16}
COMPUTED = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float32, "bf16": np.float32}


def widen(stored: Array, dtype: str) -> Array:
    """Stored values as they are computed with."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if dtype == "fp16":
        return stored.view(np.float16).astype(np.float32)
    return stored


def narrow(values: Array, dtype: str) -> Array:
    """Values as they are stored, rounded to the nearest (ties to even)."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    return values.astype(STORED[dtype], copy=False)
