"""Differentiable functions of looked-up rows [u, dim], on the CPU.

`inverse` (int32 [n]) is the row of each id; `ends` (int32 [bags + 1]) are the ends of bags.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from flambeau.embeddings import bag_kernels
from flambeau.tables.row_kernels import sum_by


def take(rows: Tensor, inverse: Tensor) -> Tensor:
    """Return the row of each id. [n, dim]"""
    return _Take.apply(rows, inverse)  # type: ignore[no-any-return,no-untyped-call]


def pool(
    rows: Tensor,
    inverse: Tensor,
    ends: Tensor,
    mode: Literal["sum", "mean", "max"],
    weights: Tensor | None = None,
) -> Tensor:
    """Return one row per bag [bags, dim], zeros for an empty one; `weights` [n] only with sum."""
    if mode == "max":
        return _Max.apply(rows, inverse, ends)  # type: ignore[no-any-return,no-untyped-call]
    if weights is not None:
        return _WeightedSum.apply(  # type: ignore[no-any-return,no-untyped-call]
            rows, inverse, ends, weights
        )
    return _Sum.apply(rows, inverse, ends, mode)  # type: ignore[no-any-return,no-untyped-call]


def padded(rows: Tensor, inverse: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bags' rows [bags, longest, dim], zero-padded, and their mask [bags, longest]."""
    lengths = ends.diff()
    longest = int(lengths.max()) if len(lengths) else 0
    mask = torch.arange(longest) < lengths[:, None]
    return _Pad.apply(rows, inverse, ends, longest), mask  # type: ignore[no-untyped-call]


def _like_rows(ctx: Any, grads: Tensor) -> tuple[Any, Tensor]:
    """Return the gradient as an array, and zeros for the gradient of the rows."""
    return grads.contiguous().numpy(), grads.new_zeros(ctx.count, grads.shape[-1])


class _Take(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.count = len(rows)
        return rows.index_select(0, inverse)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None]:
        (inverse,) = ctx.saved_tensors
        given, out = _like_rows(ctx, grads)
        sum_by(inverse.numpy(), given, out.numpy())
        return out, None


def _bag_sums(
    rows: Tensor, inverse: Tensor, ends: Tensor, mode: str, weights: Tensor | None = None
) -> Tensor:
    if len(inverse) == 0:
        return rows.new_zeros(len(ends) - 1, rows.shape[1])
    return functional.embedding_bag(
        inverse, rows, ends, mode=mode, per_sample_weights=weights, include_last_offset=True
    )


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor, ends: Tensor, mode: str) -> Tensor:
        ctx.save_for_backward(inverse, ends)
        ctx.count, ctx.mode = len(rows), mode
        return _bag_sums(rows, inverse, ends, mode)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None, None, None]:
        inverse, ends = ctx.saved_tensors
        if ctx.mode == "mean":
            grads = grads / ends.diff().clamp(min=1)[:, None]
        given, out = _like_rows(ctx, grads)
        bag_kernels.add_bags(given, inverse.numpy(), ends.numpy(), out.numpy())
        return out, None, None, None


class _WeightedSum(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor, ends: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(rows, inverse, ends, weights)
        ctx.count = len(rows)
        return _bag_sums(rows, inverse, ends, "sum", weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, None, None, Tensor | None]:
        rows, inverse, ends, weights = (saved.numpy(force=True) for saved in ctx.saved_tensors)
        given, out = _like_rows(ctx, grads)
        bag_kernels.add_weighted_bags(given, inverse, ends, weights, out.numpy())
        if not ctx.needs_input_grad[3]:
            return out, None, None, None
        of_weights = grads.new_empty(len(weights))
        bag_kernels.weight_gradients(given, rows, inverse, ends, of_weights.numpy())
        return out, None, None, of_weights


class _Max(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor, ends: Tensor) -> Tensor:
        out = rows.new_zeros(len(ends) - 1, rows.shape[1])
        winners = torch.full(out.shape, -1, dtype=torch.int32)
        arrays = (tensor.numpy(force=True) for tensor in (rows, inverse, ends, out, winners))
        bag_kernels.largest(*arrays)
        ctx.save_for_backward(winners)
        ctx.count = len(rows)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None, None]:
        (winners,) = ctx.saved_tensors
        given, out = _like_rows(ctx, grads)
        bag_kernels.add_to_winners(given, winners.numpy(), out.numpy())
        return out, None, None


class _Pad(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor, ends: Tensor, longest: int) -> Tensor:
        ctx.save_for_backward(inverse, ends)
        ctx.count = len(rows)
        out = rows.new_zeros(len(ends) - 1, longest, rows.shape[1])
        bag_kernels.pad(*(tensor.numpy(force=True) for tensor in (rows, inverse, ends, out)))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None, None, None]:
        inverse, ends = ctx.saved_tensors
        given, out = _like_rows(ctx, grads)
        bag_kernels.add_padded(given, inverse.numpy(), ends.numpy(), out.numpy())
        return out, None, None, None
