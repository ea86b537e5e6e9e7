"""Kernels over bags of rows: bag b has the rows `inverse[ends[b]:ends[b + 1]]`.

Kernels that add write into `out` [rows, dim], which must start as zeros. Taking rows and summing
bags is left to torch, which is faster at it; torch's gradients of both are several times slower.
"""

from typing import Any

from flambeau.kernels.compiled import kernel


@kernel
def add_bags(grads: Any, inverse: Any, ends: Any, out: Any) -> None:
    """Add each bag's gradient [bags, dim] to its rows."""
    for b in range(ends.size - 1):
        for i in range(ends[b], ends[b + 1]):
            row = inverse[i]
            for j in range(out.shape[1]):
                out[row, j] += grads[b, j]


@kernel
def add_weighted_bags(grads: Any, inverse: Any, ends: Any, weights: Any, out: Any) -> None:
    """Add each bag's gradient, times the weights [n], to its rows."""
    for b in range(ends.size - 1):
        for i in range(ends[b], ends[b + 1]):
            row = inverse[i]
            for j in range(out.shape[1]):
                out[row, j] += weights[i] * grads[b, j]


@kernel
def weight_gradients(grads: Any, rows: Any, inverse: Any, ends: Any, out: Any) -> None:
    """Write the product of row i with the gradient of its bag to `out[i]`."""
    for b in range(ends.size - 1):
        for i in range(ends[b], ends[b + 1]):
            row = inverse[i]
            total = out.dtype.type(0)
            for j in range(rows.shape[1]):
                total += rows[row, j] * grads[b, j]
            out[i] = total


@kernel
def largest(rows: Any, inverse: Any, ends: Any, out: Any, winners: Any) -> None:
    """Write the largest number of each column of a bag, and its row (-1: the bag is empty)."""
    for b in range(ends.size - 1):
        for i in range(ends[b], ends[b + 1]):
            row = inverse[i]
            for j in range(out.shape[1]):
                if winners[b, j] < 0 or rows[row, j] > out[b, j]:
                    out[b, j] = rows[row, j]
                    winners[b, j] = row


@kernel
def add_to_winners(grads: Any, winners: Any, out: Any) -> None:
    """Add each number of a bag's gradient to the row that had the maximum."""
    for b in range(winners.shape[0]):
        for j in range(winners.shape[1]):
            if winners[b, j] >= 0:
                out[winners[b, j], j] += grads[b, j]


@kernel
def pad(rows: Any, inverse: Any, ends: Any, out: Any) -> None:
    """Copy the rows of bag b to the start of `out[b]` [longest, dim]."""
    for b in range(ends.size - 1):
        for i in range(ends[b], ends[b + 1]):
            row = inverse[i]
            for j in range(out.shape[2]):
                out[b, i - ends[b], j] = rows[row, j]


@kernel
def add_padded(grads: Any, inverse: Any, ends: Any, out: Any) -> None:
    """Add the gradients [bags, longest, dim] of padded bags to their rows."""
    for b in range(ends.size - 1):
        for i in range(ends[b], ends[b + 1]):
            row = inverse[i]
            for j in range(out.shape[1]):
                out[row, j] += grads[b, i - ends[b], j]
