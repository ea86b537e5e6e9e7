"""allgather, broadcast, alltoall and reducescatter in all of their forms."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau.compat.horovod.messages import Kind
from flambeau.compat.horovod.operations import (
    Average,
    Sum,
    check,
    operation_of,
    start,
    synchronize,
    work_of,
)
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set
from flambeau.compat.horovod.running import engine
from flambeau.compat.horovod.work import Work


def _sum_over_ranks(tensor: Tensor, process_set: ProcessSet) -> Tensor:
    """Return the sum of a gradient."""
    work = work_of("allreduce", tensor.contiguous(), None, process_set, op=Sum)
    result: Tensor = synchronize(start(work))
    return result


def _group(kind: str, name: str | None, process_set: ProcessSet) -> str:
    return engine().name(f"grouped_{kind}", name, process_set.process_set_id or 0)


# Gather


def _gather_work(tensor: Tensor, name: str | None, process_set: ProcessSet, **group: Any) -> Work:
    check(tensor)
    rows = tensor.reshape(1) if tensor.dim() == 0 else tensor
    return work_of("allgather", rows, name, process_set, **group)


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin to gather the rows of all ranks; return a handle for `synchronize`."""
    return start(_gather_work(tensor, name, process_set))


class _AllGather(torch.autograd.Function):
    """The gradient is this rank's part of the sum of all gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: Any, process_set: ProcessSet) -> Tensor:
        ctx.shape, ctx.process_set = tensor.shape, process_set
        result: Tensor = synchronize(allgather_async(tensor, name, process_set))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        total = _sum_over_ranks(gradients[0], ctx.process_set)
        rows = ctx.shape[0] if ctx.shape else 1
        counts = synchronize(allgather_async(torch.tensor([rows]), None, ctx.process_set)).tolist()
        begin = sum(counts[: ctx.process_set.rank()])
        return total[begin : begin + rows].reshape(ctx.shape), None, None


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the rows of all ranks, in their order; ranks may have different numbers of rows."""
    result: Tensor = _AllGather.apply(tensor, name, process_set)  # type: ignore[no-untyped-call]
    return result


def grouped_allgather_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to gather several tensors together; return a handle for `synchronize`."""
    full = _group("allgather", name, process_set)
    group: dict[str, Any] = {"group": full, "group_size": len(tensors)}
    named = enumerate(tensors)
    return start([_gather_work(each, f"{full}.{i}", process_set, **group) for i, each in named])


class _GroupedAllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, process_set: ProcessSet, *tensors: Tensor) -> Any:
        ctx.shapes, ctx.process_set = [tensor.shape for tensor in tensors], process_set
        return tuple(synchronize(grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        rows = torch.tensor([[shape[0] if shape else 1 for shape in ctx.shapes]])
        counts = synchronize(allgather_async(rows, None, ctx.process_set))
        begins = counts[: ctx.process_set.rank()].sum(0).tolist()
        found = []
        for gradient, begin, count, shape in zip(
            gradients, begins, rows[0].tolist(), ctx.shapes, strict=True
        ):
            total = _sum_over_ranks(gradient, ctx.process_set)
            found.append(total[begin : begin + count].reshape(shape))
        return None, None, *found


def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Return the rows of all ranks for several tensors."""
    return list(_GroupedAllGather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]


# Broadcast


def _broadcast_work(
    tensor: Tensor, target: Tensor | None, root: int, name: str | None, process_set: ProcessSet
) -> Work:
    return work_of("broadcast", tensor, name, process_set, target=target, root=int(root))


def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to send the tensor of a rank to all; return a handle for `synchronize`."""
    return start(_broadcast_work(tensor, None, root_rank, name, process_set))


def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to replace a tensor by that of a rank; return a handle for `synchronize`."""
    return start(_broadcast_work(tensor, tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    """The gradient is the sum of all, on the root."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, name: Any, process_set: ProcessSet) -> Tensor:
        ctx.given = root, process_set
        result: Tensor = synchronize(broadcast_async(tensor, root, name, process_set))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        root, process_set = ctx.given
        total = _sum_over_ranks(gradients[0], process_set)
        return total * float(engine().place.rank == root), None, None, None


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Return the tensor of a rank."""
    result: Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
    return result


def broadcast_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Replace a tensor by that of a rank and return it."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


# All to all


def _splits_of(tensor: Tensor, splits: Any, process_set: ProcessSet) -> list[int]:
    """Return how many rows go to each rank."""
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


def _exchange_work(tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Work:
    given = _splits_of(tensor, splits, process_set)
    return work_of("alltoall", tensor[: sum(given)], name, process_set, splits=given)


def _alltoall(
    tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet
) -> tuple[Tensor, Tensor]:
    work = _exchange_work(tensor, splits, name, process_set)
    found: tuple[Tensor, Tensor] = synchronize(start(work))
    return found


def alltoall_async(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to send rows to each rank; return a handle for `synchronize`.

    Its result is a pair with `splits`: the rows received, and how many came from each rank.
    """
    work = _exchange_work(tensor, splits, name, process_set)
    work.only_first = splits is None
    return start(work)


class _AllToAll(torch.autograd.Function):
    """Gradients travel back as the rows came."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: Any, process_set: ProcessSet) -> Any:
        rows, received = _alltoall(tensor, splits, name, process_set)
        ctx.given = received.tolist(), process_set, tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return rows, received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        received, process_set, rows = ctx.given
        back, _ = _alltoall(gradients[0].contiguous(), received, None, process_set)
        if back.shape[0] < rows:  # rows that nobody got
            rest = back.new_zeros((rows - back.shape[0], *back.shape[1:]))
            back = torch.cat([back, rest])
        return back, None, None, None


def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows to each rank, and return those that came; with `splits` also how many from each."""
    rows, received = _AllToAll.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    return rows if splits is None else (rows, received)


# Reduce and scatter


def _scatter_operation(op: int) -> int:
    chosen = operation_of(None, op)
    if chosen not in (Average, Sum):
        raise ValueError("reducescatter can average and sum only")
    return chosen


def _scatter_work(
    tensor: Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet,
    factors: tuple[float, float],
    **group: Any,
) -> Work:
    kind: Kind = "reducescatter"
    check(tensor)
    if tensor.dim() == 0:
        raise ValueError("reducescatter of a tensor without dimensions")
    chosen, (pre, post) = _scatter_operation(op), map(float, factors)
    return work_of(
        kind, tensor, name, process_set, op=chosen, prescale=pre, postscale=post, **group
    )


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin to reduce a tensor and keep this rank's rows of it; return a handle."""
    factors = prescale_factor, postscale_factor
    return start(_scatter_work(tensor, name, op, process_set, factors))


class _ReduceScatter(torch.autograd.Function):
    """The gradient is gathered; that of a sum is multiplied by the ranks, as in Horovod."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, name: Any, op: int, process_set: ProcessSet, *f: Any
    ) -> Tensor:
        ctx.given = op, process_set, f
        result: Tensor = synchronize(reducescatter_async(tensor, name, op, process_set, *f))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _gathered(gradients[0], *ctx.given), *[None] * 5


def _gathered(gradient: Tensor, op: int, process_set: ProcessSet, factors: Any) -> Tensor:
    whole: Tensor = synchronize(allgather_async(gradient.contiguous(), None, process_set))
    scaled: Tensor = whole * (factors[0] * factors[1])
    return scaled * process_set.size() if op == Sum else scaled


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: Any = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Return this rank's rows of a reduced tensor; the first ranks have one more if need be."""
    sent, ctx = (tensor, None) if compression is None else compression.compress(tensor)
    factors = prescale_factor, postscale_factor
    rows: Tensor = _ReduceScatter.apply(sent, name, op, process_set, *factors)  # type: ignore[no-untyped-call]
    return rows if compression is None else compression.decompress(rows, ctx)


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin to reduce and scatter several tensors together; return a handle."""
    full = _group("reducescatter", name, process_set)
    group: dict[str, Any] = {"group": full, "group_size": len(tensors)}
    factors = prescale_factor, postscale_factor
    return start(
        [
            _scatter_work(each, f"{full}.{i}", op, process_set, factors, **group)
            for i, each in enumerate(tensors)
        ]
    )


class _GroupedReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, given: Any, *tensors: Tensor) -> Any:
        ctx.given = given
        op, process_set, factors = given
        handle = grouped_reducescatter_async(tensors, name, op, process_set, *factors)
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *[_gathered(gradient, *ctx.given) for gradient in gradients]


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: Any = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Return this rank's rows of several reduced tensors."""
    sent = [(each, None) if compression is None else compression.compress(each) for each in tensors]
    given = op, process_set, (prescale_factor, postscale_factor)
    found = _GroupedReduceScatter.apply(name, given, *[each for each, _ in sent])  # type: ignore[no-untyped-call]
    if compression is None:
        return list(found)
    return [compression.decompress(each, ctx) for each, (_, ctx) in zip(found, sent, strict=True)]
