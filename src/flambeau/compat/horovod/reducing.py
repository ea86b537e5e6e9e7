"""allreduce, grouped_allreduce and sparse_allreduce in all of their forms."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau.compat.horovod.compression import Compression, Compressor
from flambeau.compat.horovod.gathering import allgather_async
from flambeau.compat.horovod.operations import (
    Adasum,
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


def _work(
    tensor: Tensor,
    target: Tensor | None,
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    group: tuple[str, int] = ("", 1),
) -> Work:
    kind: Any = "adasum" if op == Adasum else "allreduce"
    if op == Adasum:
        _check_adasum(tensor, process_set, factors)
    return work_of(
        kind,
        tensor,
        name,
        process_set,
        target=target,
        op=op,
        prescale=float(factors[0]),
        postscale=float(factors[1]),
        group=group[0],
        group_size=group[1],
    )


def _check_adasum(tensor: Tensor, process_set: ProcessSet, factors: tuple[float, float]) -> None:
    size = process_set.size()
    if size & (size - 1):
        raise NotImplementedError(f"Adasum needs a power of two of ranks, not {size}")
    if not tensor.is_floating_point():
        raise ValueError(f"Adasum needs numbers of floating point, not {tensor.dtype}")
    if factors != (1.0, 1.0):
        raise ValueError("Adasum takes no prescale_factor or postscale_factor")


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to reduce a tensor over ranks; return a handle for `synchronize`."""
    factors = prescale_factor, postscale_factor
    return start(_work(tensor, None, name, operation_of(average, op), factors, process_set))


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to reduce a tensor in place; return a handle for `synchronize`."""
    factors = prescale_factor, postscale_factor
    return start(_work(tensor, tensor, name, operation_of(average, op), factors, process_set))


class _AllReduce(torch.autograd.Function):
    """The gradient of a reduction is reduced in the same way."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: Any, op: int, *rest: Any) -> Tensor:
        ctx.given = op, *rest
        result: Tensor = synchronize(allreduce_async(tensor, None, name, op, *rest))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        op, *rest = ctx.given
        return allreduce(gradients[0], None, None, Compression.none, op, *rest), *[None] * 5


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Return a tensor reduced over ranks: averaged, if `op` does not say otherwise."""
    check(tensor)
    sent, ctx = compression.compress(tensor)
    chosen = operation_of(average, op)
    reduced: Tensor = _AllReduce.apply(  # type: ignore[no-untyped-call]
        sent, name, chosen, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(reduced, ctx)


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduce a tensor over ranks in place and return it."""
    factors = prescale_factor, postscale_factor
    synchronize(allreduce_async_(tensor, average, name, op, *factors, process_set))
    return tensor


# Several at once


def _grouped(
    tensors: Sequence[Tensor],
    targets: Sequence[Tensor | None],
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    for tensor in tensors:
        check(tensor)
    number = process_set.process_set_id or 0
    full = engine().name("grouped_allreduce", name, number)
    group = (full, len(tensors)) if op != Adasum else ("", 1)
    return start(
        [
            _work(tensor, target, f"{full}.{i}", op, factors, process_set, group)
            for i, (tensor, target) in enumerate(zip(tensors, targets, strict=True))
        ]
    )


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to reduce tensors, all together; return a handle for `synchronize`."""
    factors, none = (prescale_factor, postscale_factor), [None] * len(tensors)
    return _grouped(tensors, none, name, operation_of(average, op), factors, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to reduce tensors in place, all together; return a handle for `synchronize`."""
    factors = (prescale_factor, postscale_factor)
    return _grouped(tensors, tensors, name, operation_of(average, op), factors, process_set)


class _GroupedAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, given: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.given = given
        return tuple(synchronize(grouped_allreduce_async(tensors, None, name, *given)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        contiguous = [gradient.contiguous() for gradient in gradients]
        return None, None, *synchronize(grouped_allreduce_async(contiguous, None, None, *ctx.given))


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Return tensors reduced over ranks, all together."""
    if not tensors:
        return []
    sent = [compression.compress(tensor) for tensor in tensors]
    given = operation_of(average, op), prescale_factor, postscale_factor, process_set
    reduced = _GroupedAllReduce.apply(name, given, *[tensor for tensor, _ in sent])  # type: ignore[no-untyped-call]
    return [compression.decompress(r, ctx) for r, (_, ctx) in zip(reduced, sent, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Tensor]:
    """Reduce tensors over ranks in place, all together, and return them."""
    factors = prescale_factor, postscale_factor
    synchronize(grouped_allreduce_async_(tensors, average, name, op, *factors, process_set))
    return tensors


# Sparse


def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Tensor]:
    """Begin to reduce a sparse tensor; return what `synchronize` takes, or call it for the result.

    The parts of all ranks are gathered, and equal indices added up when the result is coalesced.
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
