"""The variants of allgather."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.operations.differentiable import applied
from flambeau.compat.horovod.operations.handles import (
    averaged,
    check,
    group_of,
    start,
    synchronize,
    work_of,
)
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


def _work(tensor: Tensor, name: str | None, process_set: ProcessSet, **group: Any) -> Work:
    check(tensor)
    rows = tensor.reshape(1) if tensor.dim() == 0 else tensor
    return work_of("allgather", rows, name, process_set, **group)


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start to gather the rows of all ranks; return a handle for `synchronize`."""
    return start(_work(tensor, name, process_set))


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the rows of all ranks, in rank order; ranks may have different numbers of rows."""
    check(tensor)
    shape = tensor.shape
    return applied(
        lambda given: [synchronize(allgather_async(given[0], name, process_set))],
        lambda gradients: _parts(gradients, [shape], process_set),
        [tensor],
    )[0]


def grouped_allgather_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to gather several tensors together; return a handle for `synchronize`."""
    full, group = group_of("grouped_allgather", name, process_set, len(tensors))
    named = enumerate(tensors)
    return start([_work(each, f"{full}.{i}", process_set, **group) for i, each in named])


def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Return the rows of all ranks for several tensors."""
    shapes = [tensor.shape for tensor in tensors]
    found = applied(
        lambda given: synchronize(grouped_allgather_async(given, name, process_set)),
        lambda gradients: _parts(gradients, shapes, process_set),
        tensors,
    )
    return list(found)


def _parts(
    gradients: Sequence[Tensor], shapes: Sequence[torch.Size], process_set: ProcessSet
) -> list[Tensor]:
    """Return this rank's parts of the averaged gradients, as Horovod does."""
    rows = torch.tensor([[shape[0] if shape else 1 for shape in shapes]])
    counts = synchronize(allgather_async(rows, None, process_set))
    begins = counts[: process_set.rank()].sum(0).tolist()
    found = []
    for gradient, begin, count, shape in zip(
        gradients, begins, rows[0].tolist(), shapes, strict=True
    ):
        found.append(averaged(gradient, process_set)[begin : begin + count].reshape(shape))
    return found
