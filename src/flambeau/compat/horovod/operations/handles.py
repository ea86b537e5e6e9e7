"""Requests for operations by name, their handles, and their results."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau.compat.horovod.engine.running import engine, is_running
from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.negotiation.messages import ALL, Kind, Request
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set, set_number

Average, Sum, Adasum, Min, Max, Product = range(6)

#: Data types that operations accept, and their names in requests.
TYPES = {
    each: str(each).removeprefix("torch.")
    for each in (
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.bool,
    )
}

_numbers = itertools.count()
#: Operations whose results have not been taken, by handle.
_works: dict[int, list[Work] | Work] = {}


def operation_of(average: bool | None, op: int | None) -> int:
    """Return the reduction that `average` (the older argument) or `op` selects."""
    if average is not None and op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is not None:
        if op not in range(6):
            raise ValueError(f"op={op!r} is none of hvd.Average, Sum, Adasum, Min, Max and Product")
        return op
    return Sum if average is False else Average


def start(works: list[Work] | Work, *, wake: bool = True) -> int:
    """Request operations and return their handle."""
    engine().submit(works if isinstance(works, list) else [works], wake=wake)
    handle = next(_numbers)
    _works[handle] = works
    return handle


def poll(handle: Any) -> bool:
    """Return whether the operation of a handle is done, so that `synchronize` does not wait."""
    works = _works.get(handle, [])
    return all(work.done for work in (works if isinstance(works, list) else [works]))


def synchronize(handle: Any) -> Any:
    """Wait for the operation of a handle; return its result or raise its error."""
    if callable(handle):  # of sparse_allreduce_async
        return handle()
    works = _works.pop(handle, None)
    if works is None:
        return None
    flush()
    if isinstance(works, Work):
        return works.wait()
    return [work.wait() for work in works]


def flush() -> None:
    """Send requests that wait to be sent together with others."""
    if is_running():
        engine().flush()


def work_of(
    kind: Kind,
    tensor: Tensor,
    name: str | None,
    process_set: ProcessSet = global_process_set,
    *,
    target: Tensor | None = None,
    shape: Sequence[int] | None = None,
    **settings: Any,
) -> Work:
    """Return an operation on a tensor."""
    check(tensor)
    number = set_number(process_set)
    request = Request(
        kind,
        engine().name(_NAMED_AS.get(kind, kind), name, number),
        TYPES[tensor.dtype],
        list(tensor.shape if shape is None else shape),
        process_set=number,
        **settings,
    )
    return Work(request, tensor, target)


#: The same name, so that an allreduce of one rank and an Adasum of another are a mismatch.
_NAMED_AS = {"adasum": "allreduce"}


def check(tensor: Tensor) -> None:
    """Raise an error unless this is a dense tensor of a type that can be sent."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"a tensor of torch is needed, not {type(tensor).__name__}")
    if tensor.is_sparse:
        raise ValueError("a sparse tensor: use hvd.sparse_allreduce_async, or tensor.to_dense()")
    if tensor.dtype not in TYPES:
        raise ValueError(f"tensors of type {tensor.dtype} cannot be sent; convert them")


def group_of(
    kind: str, name: str | None, process_set: ProcessSet, count: int
) -> tuple[str, dict[str, Any]]:
    """Return the name of a group of operations, and the group settings of their requests."""
    full = engine().name(kind, name, process_set.process_set_id or 0)
    return full, {"group": full, "group_size": count}


def averaged(gradient: Tensor, process_set: ProcessSet) -> Tensor:
    """Return the average of a gradient over ranks."""
    work = work_of("allreduce", gradient, None, process_set, op=Average)
    result: Tensor = synchronize(start(work))
    return result


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have reached this call."""
    number = set_number(process_set)
    name = engine().name("barrier", None, number)
    synchronize(start(Work(Request("barrier", name, process_set=number))))


def join(device: int = -1) -> int:
    """Contribute zeros to the reductions of the other ranks until all have joined.

    Return the rank that joined last.
    """
    result: int = synchronize(start(Work(Request("join", "join", process_set=ALL))))
    engine().renumber()
    return result
