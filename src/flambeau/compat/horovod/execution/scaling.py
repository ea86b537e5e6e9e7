"""Factors before and after a reduction, and the division of an average."""

import torch
from torch import Tensor


def scale(tensor: Tensor, factor: float) -> None:
    """Multiply in place: integers in double precision, truncated; half precision in single."""
    if factor == 1.0:
        return
    if not tensor.is_floating_point():
        tensor.copy_(tensor.double().mul_(factor))
    elif tensor.dtype in (torch.float16, torch.bfloat16):
        tensor.copy_(tensor.float().mul_(factor))
    else:
        tensor.mul_(factor)


def divide(tensor: Tensor, count: int) -> None:
    """Divide in place; integers are rounded towards zero."""
    if count == 1 or tensor.dtype == torch.bool:
        return
    if tensor.is_floating_point():
        tensor.div_(count)
    else:
        tensor.div_(count, rounding_mode="trunc")
