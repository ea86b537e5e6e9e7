"""What is around ReLU in a layer, forward and backward, each in one pass over memory.

As torch has it, what is not a number stays so, and so does a gradient where it came out.
"""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import kernel

#: Rows that are added up before they are added to the sum of others, which then loses fewer digits.
_TOGETHER = 256


@kernel
def add_and_cut(values: Any, bias: Any) -> None:
    """values = max(values + bias, 0). [rows, columns], [columns]"""
    zero = values.dtype.type(0)
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = values[i, j] + bias[j]
            values[i, j] = zero if value <= zero else value


@kernel
def cut_and_sum(grads: Any, values: Any, sums: Any) -> None:
    """Gradients become zero where `values` are, `sums` become their sums over rows."""
    zero = grads.dtype.type(0)
    rows, columns = grads.shape
    sums[:] = zero
    some = np.empty_like(sums)
    for start in range(0, rows, _TOGETHER):
        some[:] = zero
        for i in range(start, min(start + _TOGETHER, rows)):
            for j in range(columns):
                grad = zero if values[i, j] <= zero else grads[i, j]
                grads[i, j] = grad
                some[j] += grad
        for j in range(columns):
            sums[j] += some[j]
