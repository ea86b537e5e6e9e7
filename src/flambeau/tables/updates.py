"""One fused kernel per optimizer: read a row, its state and its gradient, write row and state.

`values` and `state` are the places of rows (`slabs.Place`), `rows` are the distinct rows to change
and `grads` their gradients [n, dim]. A row's state is [slots * dim] numbers; an optimizer with two
slots has the second at `dim`. Scalars are passed in the precision of the values, or the loops would
not vectorise.
"""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import kernel
from flambeau.tables.row_kernels import later, prefetch_row, row_in


@kernel
def sgd(rows: Any, grads: Any, values: Any, lr: Any, decay: Any) -> None:
    """Apply SGD: v -= lr (g + decay v)."""
    v_slabs, v_shift = values
    dim = grads.shape[1]
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        for j in range(dim):
            v[j] -= lr * (grads[i, j] + decay * v[j])


@kernel
def momentum(
    rows: Any,
    grads: Any,
    values: Any,
    state: Any,
    lr: Any,
    decay: Any,
    mu: Any,
    nesterov: bool,
) -> None:
    """Apply momentum: m = mu m + g; v -= lr m (nesterov: lr (g + mu m))."""
    v_slabs, v_shift = values
    s_slabs, s_shift = state
    dim = grads.shape[1]
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        prefetch_row(s_slabs, s_shift, later(rows, i), dim * grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        m = row_in(s_slabs, s_shift, rows[i], dim, grads)
        for j in range(dim):
            g = grads[i, j] + decay * v[j]
            m[j] = mu * m[j] + g
            v[j] -= lr * (g + mu * m[j] if nesterov else m[j])


@kernel
def adagrad(
    rows: Any,
    grads: Any,
    values: Any,
    state: Any,
    lr: Any,
    decay: Any,
    eps: Any,
) -> None:
    """Apply Adagrad: a += g^2; v -= lr g / (sqrt(a) + eps)."""
    v_slabs, v_shift = values
    s_slabs, s_shift = state
    dim = grads.shape[1]
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        prefetch_row(s_slabs, s_shift, later(rows, i), dim * grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        a = row_in(s_slabs, s_shift, rows[i], dim, grads)
        for j in range(dim):
            g = grads[i, j] + decay * v[j]
            a[j] += g * g
            v[j] -= lr * g / (np.sqrt(a[j]) + eps)


@kernel
def rowwise_adagrad(
    rows: Any,
    grads: Any,
    values: Any,
    state: Any,
    lr: Any,
    decay: Any,
    eps: Any,
) -> None:
    """Apply row-wise Adagrad, one `a` per row: a += mean(g^2); v -= lr g / (sqrt(a) + eps)."""
    v_slabs, v_shift = values
    s_slabs, s_shift = state
    dim = grads.shape[1]
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        prefetch_row(s_slabs, s_shift, later(rows, i), grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        a = row_in(s_slabs, s_shift, rows[i], 1, grads)
        total = grads.dtype.type(0)
        for j in range(dim):
            g = grads[i, j] + decay * v[j]
            total += g * g
        a[0] += total / grads.dtype.type(dim)
        scale = lr / (np.sqrt(a[0]) + eps)
        for j in range(dim):
            v[j] -= scale * (grads[i, j] + decay * v[j])


@kernel
def adam(
    rows: Any,
    grads: Any,
    values: Any,
    state: Any,
    rate: Any,
    shrink: Any,
    decay: Any,
    beta1: Any,
    beta2: Any,
    eps: Any,
) -> None:
    """Apply lazy Adam: only rows with a gradient change, as in torch's SparseAdam.

    `rate` is lr sqrt(1 - beta2^t) / (1 - beta1^t); `shrink` is 1 - lr weight_decay for AdamW.
    """
    v_slabs, v_shift = values
    s_slabs, s_shift = state
    dim = grads.shape[1]
    one = grads.dtype.type(1)
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        prefetch_row(s_slabs, s_shift, later(rows, i), 2 * dim * grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        s = row_in(s_slabs, s_shift, rows[i], 2 * dim, grads)
        for j in range(dim):
            g = grads[i, j] + decay * v[j]
            m = beta1 * s[j] + (one - beta1) * g
            n = beta2 * s[dim + j] + (one - beta2) * g * g
            s[j] = m
            s[dim + j] = n
            v[j] = shrink * v[j] - rate * m / (np.sqrt(n) + eps)


@kernel
def rmsprop(
    rows: Any,
    grads: Any,
    values: Any,
    state: Any,
    lr: Any,
    decay: Any,
    alpha: Any,
    eps: Any,
) -> None:
    """Apply RMSprop: a = alpha a + (1 - alpha) g^2; v -= lr g / (sqrt(a) + eps)."""
    v_slabs, v_shift = values
    s_slabs, s_shift = state
    dim = grads.shape[1]
    one = grads.dtype.type(1)
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        prefetch_row(s_slabs, s_shift, later(rows, i), dim * grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        a = row_in(s_slabs, s_shift, rows[i], dim, grads)
        for j in range(dim):
            g = grads[i, j] + decay * v[j]
            a[j] = alpha * a[j] + (one - alpha) * g * g
            v[j] -= lr * g / (np.sqrt(a[j]) + eps)


@kernel
def ftrl(
    rows: Any,
    grads: Any,
    values: Any,
    state: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    beta: Any,
) -> None:
    """Apply FTRL-Proximal with per-coordinate rates; the state is z, then n."""
    v_slabs, v_shift = values
    s_slabs, s_shift = state
    dim = grads.shape[1]
    for i in range(rows.size):
        prefetch_row(v_slabs, v_shift, later(rows, i), dim * grads.itemsize)
        prefetch_row(s_slabs, s_shift, later(rows, i), 2 * dim * grads.itemsize)
        v = row_in(v_slabs, v_shift, rows[i], dim, grads)
        s = row_in(s_slabs, s_shift, rows[i], 2 * dim, grads)
        for j in range(dim):
            g = grads[i, j]
            n = s[dim + j]
            grown = n + g * g
            z = s[j] + g - (np.sqrt(grown) - np.sqrt(n)) / lr * v[j]
            s[j] = z
            s[dim + j] = grown
            if abs(z) <= l1:
                v[j] = grads.dtype.type(0)
            else:
                pull = z - l1 if z > 0 else z + l1
                v[j] = -pull / ((beta + np.sqrt(grown)) / lr + l2)


@kernel
def clipped(grads: Any, limit: Any, out: Any) -> None:
    """Write the gradients to `out`, scaling down those whose norm exceeds `limit`."""
    for i in range(grads.shape[0]):
        total = grads.dtype.type(0)
        for j in range(grads.shape[1]):
            total += grads[i, j] * grads[i, j]
        scale = limit / np.sqrt(total) if total > limit * limit else grads.dtype.type(1)
        for j in range(grads.shape[1]):
            out[i, j] = grads[i, j] * scale
