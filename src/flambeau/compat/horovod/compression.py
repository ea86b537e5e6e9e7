"""Data types in which gradients are sent."""

from typing import Any

import torch
from torch import Tensor


class Compressor:
    """A conversion of tensors before they are reduced, and back."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return the tensor to reduce, and the context that `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the reduced tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """No compression."""

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
        """Return the tensor in the smaller type if it is floating point, and its original type."""
        smaller = tensor.is_floating_point() and tensor.dtype.itemsize > cls.dtype.itemsize
        return (tensor.to(cls.dtype) if smaller else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor in its original type."""
        return tensor.to(ctx)


class FP16Compressor(_Cast):
    """Compression to half precision."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """Compression to bfloat16: the range of single precision with fewer digits."""

    dtype = torch.bfloat16


class Compression:
    """Values for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
