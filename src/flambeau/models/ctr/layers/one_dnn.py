"""Products of float32 matrices by oneDNN, on AMD's CPUs about a tenth faster than torch's default.

torch gives products in float32 to oneDNN only where it may compute them in bf16, which not every
CPU then does. Whether this one does is tried once; where digits would be lost, nothing changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from flambeau.models.ctr.layers.large_work import is_large

#: bf16 is wrong in the third digit, float32 in the seventh.
_PRECISE = 1e-5


def gains(x: Tensor, multiplications: int) -> bool:
    """Whether a product with `x`, and those of its gradient, should be made by oneDNN."""
    return is_large(x, multiplications) and keeps_precision()


@contextmanager
def by_one_dnn() -> Iterator[None]:
    """Products inside are made by oneDNN."""
    matmul = _matmul()
    assert matmul is not None
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@cache
def keeps_precision() -> bool:
    """Whether oneDNN computes in float32 on this CPU; False if this torch cannot be told to."""
    if _matmul() is None or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    one, other = (torch.rand(size, generator=_generator()) for size in ((256, 144), (144, 80)))
    with by_one_dnn():
        found = [one @ other, (other.t() @ one.t()).t(), torch.bmm(one[None], other[None])[0]]
    wanted = one.double() @ other.double()
    return all(torch.allclose(each.double(), wanted, rtol=_PRECISE) for each in found)


def _matmul() -> Any:
    """torch's switch; older ones have none."""
    return getattr(torch.backends.mkldnn, "matmul", None)


def _generator() -> torch.Generator:
    """Of its own: who asks first must not change what a model begins with."""
    return torch.Generator().manual_seed(0)
