"""Products of all pairs of the fields' rows [rows, fields, dim]."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

#: Number of multiplications from which kernels save more time than calling them takes.
_LARGE = 1 << 23


def sum_of_products(rows: Tensor) -> Tensor:
    """Return sum_{i<j} <x_i, x_j>, in time linear in the fields (Rendle 2010, lemma 3.1). [rows]"""
    return half_difference(rows.sum(1), rows.square().sum(1))


def half_difference(total: Tensor, squares: Tensor) -> Tensor:
    """Return the same from sum_i x_i and sum_i x_i^2, both [rows, dim]. [rows]"""
    return 0.5 * (total.square() - squares).sum(1)


def inner_products(rows: Tensor, first: Tensor | None = None) -> Tensor:
    """Return <x_i, x_j> for all i < j, in the order of `pair_indices`. [rows, pairs]

    `first` [rows, dim] is a vector before the others, and is placed before the products as well.
    """
    if rows.requires_grad and torch.is_grad_enabled():
        return _InnerProducts.apply(rows, first)  # type: ignore[no-any-return,no-untyped-call]
    return _inner_products(rows, first)


def _inner_products(rows: Tensor, first: Tensor | None) -> Tensor:
    rows = _all_vectors(rows, first)
    fields = rows.shape[1]
    one, other = pair_indices(fields, rows.device)
    products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
    products = products.index_select(1, one * fields + other)
    return products if first is None else torch.cat([first, products], dim=1)


def _all_vectors(rows: Tensor, first: Tensor | None) -> Tensor:
    return rows if first is None else torch.cat([first[:, None], rows], dim=1)


def kernels_gain(rows: Tensor) -> bool:
    """Return whether the kernels are faster than torch for these rows.

    They are for large float32 batches in a process of one thread on a CPU, such as workers; with
    several threads torch is faster.
    """
    return (
        not torch.compiler.is_compiling()  # first: a graph must not depend on the number of rows
        and rows.numel() * rows.shape[1] >= _LARGE
        and rows.device.type == "cpu"
        and rows.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.get_num_threads() == 1
    )


class _InnerProducts(Function):
    """Inner products with a gradient of one product with a symmetric matrix; torch needs two."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, first: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, first)
        ctx.by_kernel = kernels_gain(rows)
        return (_by_kernel if ctx.by_kernel else _inner_products)(rows, first)

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, Tensor | None]:
        rows, first = ctx.saved_tensors
        if ctx.by_kernel and not torch.is_grad_enabled():
            return _gradients_by_kernel(grads, rows, first)
        return _gradients(grads, rows, first)


def _gradients(grads: Tensor, rows: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor | None]:
    beside = 0 if first is None else first.shape[1]
    rows = _all_vectors(rows, first)
    fields = rows.shape[1]
    one, other = pair_indices(fields, rows.device)
    places = torch.zeros(fields, fields, dtype=torch.int64, device=rows.device)
    places[one, other] = places[other, one] = torch.arange(
        beside, grads.shape[1], device=rows.device
    )
    matrix = grads.index_select(1, places.flatten()).view(-1, fields, fields)
    matrix.diagonal(dim1=1, dim2=2).zero_()
    found = torch.bmm(matrix, rows.to(matrix.dtype)).to(rows.dtype)
    if first is None:
        return found, None
    return found[:, 1:], found[:, 0] + grads[:, :beside]


def _by_kernel(rows: Tensor, first: Tensor | None) -> Tensor:
    # Loads Numba, which models that are not trained do not need.
    from flambeau.models.ctr.layers.pair_kernels import products_of_pairs

    before = _nothing(rows) if first is None else first
    beside = before.shape[1]
    out = rows.new_empty(len(rows), beside + pair_count(rows.shape[1] + min(beside, 1)))
    products_of_pairs(_array(before), _array(rows), _array(out))
    return out


def _gradients_by_kernel(
    grads: Tensor, rows: Tensor, first: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    from flambeau.models.ctr.layers.pair_kernels import gradients_of_pairs

    before = _nothing(rows) if first is None else first
    of_first, of_rows = (each.new_empty(each.shape) for each in (before, rows))
    arrays = (_array(each) for each in (grads, before, rows, of_first, of_rows))
    gradients_of_pairs(*arrays)
    return of_rows, None if first is None else of_first


def _nothing(rows: Tensor) -> Tensor:
    return rows.new_empty(len(rows), 0)


def _array(tensor: Tensor) -> Any:
    return tensor.contiguous().numpy(force=True)


def element_products(rows: Tensor) -> Tensor:
    """Return x_i * x_j, element-wise, for all i < j. [rows, pairs, dim]"""
    one, other = pair_indices(rows.shape[1], rows.device)
    return rows.index_select(1, one) * rows.index_select(1, other)


def pair_indices(fields: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return i and j of all pairs i < j: (0, 1), (0, 2), ..., (1, 2), ..."""
    one, other = torch.triu_indices(fields, fields, offset=1, device=device)
    return one, other


def pair_count(fields: int) -> int:
    """Return the number of pairs."""
    return fields * (fields - 1) // 2
