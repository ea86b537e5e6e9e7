"""Mismatches between the requests of different ranks for one operation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau.compat.horovod.negotiation.messages import OPERATIONS, Request

Requests = Mapping[int, Request]


def mismatch(requests: Requests, members: Sequence[int], *, joined: bool) -> str:
    """Return why these requests, by rank, cannot be one operation; empty if they can."""
    first = next(iter(requests.values()))
    for what, value in _compared(first):
        found = _first_difference(requests, value)
        if found:
            return f"Mismatched {what} of '{first.name}': {found}."
    if joined and first.kind not in ("allreduce", "barrier", "join"):
        return f"{first.kind} '{first.name}' is not possible after a rank has called join()."
    if first.kind == "broadcast" and first.root not in members:
        return f"Broadcast '{first.name}' from rank {first.root}: the ranks are {list(members)}."
    return ""


def _compared(first: Request) -> list[tuple[str, Callable[[Request], Any]]]:
    """Return names and functions of the values that have to be equal on all ranks."""
    checks: list[tuple[str, Callable[[Request], Any]]] = [
        ("collective operations", lambda each: each.kind),
        ("data types", lambda each: each.dtype),
    ]
    if first.kind in ("allgather", "alltoall"):
        checks.append(("shapes (all dimensions but the first)", lambda each: each.shape[1:]))
        checks.append(("numbers of dimensions", lambda each: len(each.shape)))
    else:
        checks.append(("shapes", lambda each: each.shape))
    if first.kind == "broadcast":
        checks.append(("root ranks", lambda each: each.root))
    if first.kind in ("allreduce", "reducescatter"):
        checks.append(("reduction operations", lambda each: OPERATIONS[each.op]))
        checks.append(("prescale and postscale factors", lambda e: (e.prescale, e.postscale)))
    if first.kind.endswith("process_set"):
        checks.append(("ranks of a process set", lambda each: each.splits))
    checks.append(("groups of operations", lambda each: (each.group, each.group_size)))
    return checks


def _first_difference(requests: Requests, value: Callable[[Request], Any]) -> str:
    items = iter(requests.items())
    first_rank, first = next(items)
    for rank, request in items:
        if value(request) != value(first):
            return f"rank {first_rank} has {value(first)}, rank {rank} has {value(request)}"
    return ""
