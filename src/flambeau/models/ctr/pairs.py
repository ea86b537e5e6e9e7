"""All pairs of the fields' rows [rows, fields, dim]."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from flambeau.models.ctr.one_dnn import by_one_dnn, gains


def sum_of_products(rows: Tensor) -> Tensor:
    """sum_{i<j} <x_i, x_j>, in time linear in the fields (Rendle 2010, lemma 3.1). [rows]"""
    return half_difference(rows.sum(1), rows.square().sum(1))


def half_difference(total: Tensor, squares: Tensor) -> Tensor:
    """The same from sum_i x_i and sum_i x_i^2, both [rows, dim]. [rows]"""
    return 0.5 * (total.square() - squares).sum(1)


def inner_products(rows: Tensor, beside: Tensor | None = None) -> Tensor:
    """<x_i, x_j> for all i < j, in the order of `pair_indices`, after what is `beside` them.

    [rows, n] are `beside`; the result is [rows, n + pairs].
    """
    if rows.requires_grad and torch.is_grad_enabled():
        return _InnerProducts.apply(rows, beside)  # type: ignore[no-any-return,no-untyped-call]
    return _inner_products(rows, beside)


def _inner_products(rows: Tensor, beside: Tensor | None) -> Tensor:
    fields = rows.shape[1]
    first, second = pair_indices(fields, rows.device)
    products = _products(rows, rows.transpose(1, 2)).flatten(1)
    products = products.index_select(1, first * fields + second)
    return products if beside is None else torch.cat([beside, products], dim=1)


def _products(rows: Tensor, others: Tensor) -> Tensor:
    """[rows, n, k] by [rows, k, m] to [rows, n, m]"""
    if not gains(rows, rows.numel() * others.shape[2]):
        return torch.bmm(rows, others)
    with by_one_dnn():
        return torch.bmm(rows, others)


class _InnerProducts(Function):
    """Its gradient is one product with a symmetric matrix, where torch's would be two."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, beside: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.width = 0 if beside is None else beside.shape[1]
        return _inner_products(rows, beside)

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, Tensor | None]:
        (rows,) = ctx.saved_tensors
        fields = rows.shape[1]
        first, second = pair_indices(fields, rows.device)
        places = torch.zeros(fields, fields, dtype=torch.int64, device=rows.device)
        places[first, second] = places[second, first] = torch.arange(
            ctx.width, grads.shape[1], device=rows.device
        )
        matrix = grads.index_select(1, places.flatten()).view(-1, fields, fields)
        matrix.diagonal(dim1=1, dim2=2).zero_()
        of_rows = _products(matrix, rows.to(matrix.dtype)).to(rows.dtype)
        return of_rows, grads[:, : ctx.width] if ctx.width else None


def element_products(rows: Tensor) -> Tensor:
    """x_i * x_j, element by element, for all i < j. [rows, pairs, dim]"""
    first, second = pair_indices(rows.shape[1], rows.device)
    return rows.index_select(1, first) * rows.index_select(1, second)


def pair_indices(fields: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """i and j of all pairs i < j: (0, 1), (0, 2), ..., (1, 2), ..."""
    first, second = torch.triu_indices(fields, fields, offset=1, device=device)
    return first, second


def pair_count(fields: int) -> int:
    """How many pairs there are."""
    return fields * (fields - 1) // 2
