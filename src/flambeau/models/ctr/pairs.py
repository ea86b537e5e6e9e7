"""All pairs of the fields' rows [rows, fields, dim]."""

import torch
from torch import Tensor


def sum_of_products(rows: Tensor) -> Tensor:
    """sum_{i<j} <x_i, x_j>, in time linear in the fields (Rendle 2010, lemma 3.1). [rows]"""
    return half_difference(rows.sum(1), rows.square().sum(1))


def half_difference(total: Tensor, squares: Tensor) -> Tensor:
    """The same from sum_i x_i and sum_i x_i^2, both [rows, dim]. [rows]"""
    return 0.5 * (total.square() - squares).sum(1)


def inner_products(rows: Tensor) -> Tensor:
    """<x_i, x_j> for all i < j, in the order of `pair_indices`. [rows, pairs]"""
    first, second = pair_indices(rows.shape[1], rows.device)
    return torch.bmm(rows, rows.transpose(1, 2))[:, first, second]


def element_products(rows: Tensor) -> Tensor:
    """x_i * x_j, element by element, for all i < j. [rows, pairs, dim]"""
    first, second = pair_indices(rows.shape[1], rows.device)
    return rows[:, first] * rows[:, second]


def pair_indices(fields: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """i and j of all pairs i < j: (0, 1), (0, 2), ..., (1, 2), ..."""
    first, second = torch.triu_indices(fields, fields, offset=1, device=device)
    return first, second


def pair_count(fields: int) -> int:
    """How many pairs there are."""
    return fields * (fields - 1) // 2
