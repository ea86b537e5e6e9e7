"""Types in which gradients travel."""

from typing import Any

import torch
from torch import Tensor


class Compressor:
    """Changes a tensor before it is reduced, and back."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return what is reduced, and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return what was reduced in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Changes nothing."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor itself."""
        return tensor


class _Cast(Compressor):
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: Tensor) -> tuple[Tensor, Any]:
        """Return the tensor in the smaller type, if it is of floating point."""
        smaller = tensor.is_floating_point() and tensor.dtype.itemsize > cls.dtype.itemsize
        return (tensor.to(cls.dtype) if smaller else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor in its original type."""
        return tensor.to(ctx)


class FP16Compressor(_Cast):
    """Half precision."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """The range of single precision with fewer digits."""

    dtype = torch.bfloat16


class Compression:
    """What `compression=` may be."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
