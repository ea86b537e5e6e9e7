"""Fusion of reductions that are executed together: the same decision on every rank."""

from collections.abc import Iterable, Iterator
from math import prod

import torch

from flambeau.compat.horovod.negotiation.messages import Agreement


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element."""
    found: torch.dtype = getattr(torch, dtype)
    return found.itemsize


def fused(agreements: Iterable[Agreement], limit: int) -> Iterator[list[Agreement]]:
    """Yield the agreements in parts: reductions that can be fused, others alone.

    A part has the position of its first agreement. All agreements are complete, so the order of
    parts only has to be the same on all ranks. A tensor above `limit` bytes is alone.
    """
    parts: list[list[Agreement]] = []
    open_parts: dict[tuple[object, ...], tuple[list[Agreement], int]] = {}
    for agreement in agreements:
        request = agreement.request
        if request.kind != "allreduce" or agreement.error:
            parts.append([agreement])
            continue
        key = (request.dtype, request.op, request.process_set, request.prescale, request.postscale)
        size = prod(request.shape) * item_bytes(request.dtype)
        part, filled = open_parts.get(key, ([], 0))
        if not part or filled + size > limit:
            part, filled = [], 0
            parts.append(part)
        part.append(agreement)
        open_parts[key] = part, filled + size
    yield from parts
