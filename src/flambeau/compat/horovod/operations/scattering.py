"""The variants of reducescatter."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from flambeau.compat.horovod.compression import Compression, Compressor
from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.operations.differentiable import applied
from flambeau.compat.horovod.operations.gathering import allgather_async
from flambeau.compat.horovod.operations.handles import (
    Average,
    Sum,
    check,
    group_of,
    operation_of,
    start,
    synchronize,
    work_of,
)
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


class NotScatteredError(ValueError, RuntimeError):
    """An invalid reducescatter: a ValueError, and a RuntimeError as in Horovod."""


def _work(
    tensor: Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet,
    factors: tuple[float, float],
    **group: Any,
) -> Work:
    check(tensor)
    if tensor.dim() == 0:
        raise NotScatteredError("reducescatter of a tensor without dimensions")
    chosen, (pre, post) = operation_of(None, op), map(float, factors)
    if chosen not in (Average, Sum):
        raise NotScatteredError("reducescatter can average and sum only")
    settings = {"op": chosen, "prescale": pre, "postscale": post, **group}
    return work_of("reducescatter", tensor, name, process_set, **settings)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start to reduce a tensor and keep this rank's rows of it; return a handle."""
    factors = prescale_factor, postscale_factor
    return start(_work(tensor, name, op, process_set, factors))


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Return this rank's rows of a reduced tensor; the first ranks may have one row more."""
    sent, ctx = compression.compress(tensor)
    given = op, process_set, prescale_factor, postscale_factor
    rows = applied(
        lambda each: [synchronize(reducescatter_async(each[0], name, *given))],
        lambda gradients: [_gathered(gradients[0], *given)],
        [sent],
    )[0]
    return compression.decompress(rows, ctx)


def _gathered(
    gradient: Tensor, op: int, process_set: ProcessSet, pre: float, post: float
) -> Tensor:
    """Return all rows of a gradient; as in Horovod, a sum's is multiplied by the ranks' number."""
    whole: Tensor = synchronize(allgather_async(gradient, None, process_set))
    scaled: Tensor = whole * (pre * post)
    return scaled * process_set.size() if op == Sum else scaled


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start to reduce and scatter several tensors together; return a handle."""
    full, group = group_of("grouped_reducescatter", name, process_set, len(tensors))
    factors = prescale_factor, postscale_factor
    return start(
        [
            _work(each, f"{full}.{i}", op, process_set, factors, **group)
            for i, each in enumerate(tensors)
        ]
    )


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Return this rank's rows of several reduced tensors."""
    sent = [compression.compress(each) for each in tensors]
    given = op, process_set, prescale_factor, postscale_factor
    found = applied(
        lambda each: synchronize(grouped_reducescatter_async(each, name, *given)),
        lambda gradients: [_gathered(gradient, *given) for gradient in gradients],
        [each for each, _ in sent],
    )
    return [compression.decompress(each, ctx) for each, (_, ctx) in zip(found, sent, strict=True)]
