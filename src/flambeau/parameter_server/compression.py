"""Compression of numbers sent between workers and servers: none, or rounding to 16 bits."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flambeau.errors import ProtocolError
from flambeau.parameter_server import buffers

Array = np.ndarray[Any, Any]

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LARGEST_FP16 = 65504.0


def encode(array: Array, kind: str) -> Array:
    """Return the array to send: `array` (`kind="none"`), or its values rounded to 16 bits each.

    Values too large for fp16 become the largest finite number; infinities and NaN stay.
    """
    if kind == "none":
        return np.ascontiguousarray(array)
    values = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    halves = _to_fp16(values) if _dtype(kind) is torch.float16 else values.to(torch.bfloat16)
    return halves.view(torch.int16).numpy()


def decode(buffer: Any, kind: str, dtype: Any, count: int) -> Array:
    """Return `count` encoded numbers as a writable array of `dtype`.

    Raises `ProtocolError` for a buffer of another size.
    """
    if kind == "none":
        return buffers.numbers(buffer, count, np.dtype(dtype))
    halves = torch.from_numpy(buffers.numbers(buffer, count, np.dtype(np.int16)))
    return halves.view(_dtype(kind)).to(_torch_dtype(dtype)).numpy()


def _to_fp16(values: Tensor) -> Tensor:
    halves = values.clamp(-_LARGEST_FP16, _LARGEST_FP16).to(torch.float16)
    if not math.isfinite(values.sum()):
        # An infinity means that training diverges, which the receiver must be able to detect.
        return torch.where(values.isinf(), values.to(torch.float16), halves)
    return halves


def _dtype(kind: str) -> torch.dtype:
    if kind not in _HALVES:
        raise ProtocolError(f"unknown compression {kind!r}; it is none, bf16 or fp16")
    return _HALVES[kind]


def _torch_dtype(dtype: Any) -> torch.dtype:
    return getattr(torch, np.dtype(dtype).name)  # type: ignore[no-any-return]
