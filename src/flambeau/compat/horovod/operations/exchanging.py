"""The variants of alltoall."""

from typing import Any

import torch
from torch import Tensor

from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.operations.differentiable import applied
from flambeau.compat.horovod.operations.handles import check, start, synchronize, work_of
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


def _splits_of(tensor: Tensor, splits: Any, process_set: ProcessSet) -> list[int]:
    """Return the number of rows to send to each rank."""
    check(tensor)
    size = process_set.size()
    if tensor.dim() == 0:
        raise ValueError("alltoall of a tensor without dimensions")
    if splits is None:
        if tensor.shape[0] % size:
            raise ValueError(
                f"{tensor.shape[0]} rows cannot be split evenly over {size} ranks; give splits="
            )
        return [tensor.shape[0] // size] * size
    if isinstance(splits, Tensor):
        if splits.is_floating_point() or splits.dtype == torch.bool:
            raise ValueError(f"splits of type {splits.dtype}: give whole numbers")
        splits = splits.tolist()
    given = [int(each) for each in splits]
    if len(given) != size or min(given, default=0) < 0 or sum(given) > tensor.shape[0]:
        raise ValueError(
            f"splits {given} of {tensor.shape[0]} rows for {size} ranks: give a number of rows for "
            "each rank, together at most all rows"
        )
    return given


def _work(tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Work:
    given = _splits_of(tensor, splits, process_set)
    return work_of("alltoall", tensor[: sum(given)], name, process_set, splits=given)


def alltoall_async(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to send rows to each rank; return a handle for `synchronize`.

    The result is a pair: the rows received, and the number of rows from each rank.
    """
    return start(_work(tensor, splits, name, process_set))


def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows to each rank; return those received, with `splits` also their number by rank."""
    work = _work(tensor, splits, name, process_set)
    sent = sum(work.request.splits)
    unsent = tensor.shape[0] - sent
    came: list[Tensor] = []

    def exchanged(given: Any) -> list[Tensor]:
        work.tensor = given[0][:sent]
        rows, counts = synchronize(start(work))
        came.append(counts)
        return [rows]

    def returned(gradients: Any) -> list[Tensor]:
        back = synchronize(start(_work(gradients[0], came[0], None, process_set)))[0]
        # Rows that were sent to no rank have gradients of 0.
        rest = back.new_zeros((unsent, *back.shape[1:]))
        return [torch.cat([back, rest])]

    rows = applied(exchanged, returned, [tensor])[0]
    return rows if splits is None else (rows, came[0])
