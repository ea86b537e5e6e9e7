"""The variants of allreduce and grouped_allreduce."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from flambeau.compat.horovod.compression import Compression, Compressor
from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.operations.differentiable import applied
from flambeau.compat.horovod.operations.handles import (
    Adasum,
    check,
    group_of,
    operation_of,
    start,
    synchronize,
    work_of,
)
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


def _work(
    tensor: Tensor,
    target: Tensor | None,
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    **group: Any,
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
        **group,
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
    """Start to reduce a tensor over ranks; return a handle for `synchronize`."""
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
    """Start to reduce a tensor in place; return a handle for `synchronize`."""
    factors = prescale_factor, postscale_factor
    return start(_work(tensor, tensor, name, operation_of(average, op), factors, process_set))


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
    """Return a tensor reduced over ranks; the default is the average."""
    check(tensor)
    sent, ctx = compression.compress(tensor)
    # The gradient of a reduction is reduced in the same way.
    given = operation_of(average, op), prescale_factor, postscale_factor, process_set
    reduced = applied(
        lambda each: [synchronize(allreduce_async(each[0], None, name, *given))],
        lambda gradients: [synchronize(allreduce_async(gradients[0], None, None, *given))],
        [sent],
    )[0]
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
    """Reduce a tensor over ranks in place, and return it."""
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
    full, group = group_of("grouped_allreduce", name, process_set, len(tensors))
    if op == Adasum:
        group = {}
    return start(
        [
            _work(tensor, target, f"{full}.{i}", op, factors, process_set, **group)
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
    """Start to reduce several tensors together; return a handle for `synchronize`."""
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
    """Start to reduce several tensors together in place; return a handle for `synchronize`."""
    factors = (prescale_factor, postscale_factor)
    return _grouped(tensors, tensors, name, operation_of(average, op), factors, process_set)


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
    """Return several tensors, reduced together over ranks."""
    if not tensors:
        return []
    sent = [compression.compress(tensor) for tensor in tensors]
    given = operation_of(average, op), prescale_factor, postscale_factor, process_set
    reduced = applied(
        lambda each: synchronize(grouped_allreduce_async(each, None, name, *given)),
        lambda gradients: synchronize(grouped_allreduce_async(gradients, None, None, *given)),
        [tensor for tensor, _ in sent],
    )
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
    """Reduce several tensors together over ranks in place, and return them."""
    factors = prescale_factor, postscale_factor
    synchronize(grouped_allreduce_async_(tensors, average, name, op, *factors, process_set))
    return tensors
