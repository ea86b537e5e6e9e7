"""Which agreements are executed together: the same decision on every rank."""

from collections.abc import Iterable, Iterator
from math import prod

import torch

from flambeau.compat.horovod.negotiation.messages import Agreement


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element."""
    found: torch.dtype = getattr(torch, dtype)
    return found.itemsize


def fused(agreements: Iterable[Agreement], limit: int) -> Iterator[list[Agreement]]:
    """Return the agreements in parts: reductions that can be one, others alone.

    A part is where its first agreement was; all are complete, so the order between parts does not
    matter as long as it is the same everywhere. A tensor above `limit` bytes is alone.
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
