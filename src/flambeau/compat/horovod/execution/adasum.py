"""Adasum: an average of parallel gradients, a sum of orthogonal ones, and between the two."""

import torch
from torch import Tensor

from flambeau.compat.horovod.execution.collectives import Collectives


def adasum(tensor: Tensor, group: Collectives) -> Tensor:
    """Return the Adasum of all ranks' tensors, the same on every rank.

    Pairs of neighbours are combined, then pairs of these, and so on; the number of ranks is a power
    of two. Every rank gathers all tensors, so that memory grows with the number of ranks.
    """
    rows = group.gather(tensor.reshape(1, -1), [1] * group.size)
    if not tensor.numel():
        return tensor.clone()
    level = list(rows.double())
    while len(level) > 1:
        level = [_pair(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    combined: Tensor = level[0].to(tensor.dtype).view(tensor.shape)
    return combined


def _pair(a: Tensor, b: Tensor) -> Tensor:
    dot, squared_a, squared_b = torch.dot(a, b), torch.dot(a, a), torch.dot(b, b)
    share_a = 1.0 - (dot / (2 * squared_a) if squared_a > 0 else 0.0)
    share_b = 1.0 - (dot / (2 * squared_b) if squared_b > 0 else 0.0)
    return share_a * a + share_b * b
