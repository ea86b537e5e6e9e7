"""Sums of sparse tensors."""

from collections.abc import Callable

import torch
from torch import Tensor

from flambeau.compat.horovod.engine.running import engine
from flambeau.compat.horovod.operations.gathering import allgather_async
from flambeau.compat.horovod.operations.handles import Average, Sum, synchronize
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Tensor]:
    """Start to reduce a sparse tensor; return a function for the result, or for `synchronize`.

    The parts of all ranks are gathered; coalescing the result adds up equal indices.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be averaged and summed only")
    full = engine().name("sparse_allreduce", name, process_set.process_set_id or 0)
    whole = tensor.coalesce()
    rows = whole.indices().transpose(0, 1).contiguous()
    indices = allgather_async(rows, f"{full}.indices", process_set)
    values = allgather_async(whole.values(), f"{full}.values", process_set)

    def result() -> Tensor:
        gathered, where = synchronize(values), synchronize(indices)
        if op == Average:
            gathered = gathered / process_set.size()
        return torch.sparse_coo_tensor(
            where.transpose(0, 1), gathered, tensor.shape, check_invariants=False
        )

    return result
