"""Kernels for the inner products of all pairs and their gradient, each in one pass over memory.

The vectors of a row are `first` [rows, dim], if it is not empty, and `vectors` [rows, n, dim].
"""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import kernel
from flambeau.kernels.simd import LANES, copy, load, multiply_add, spread, store, zeros

#: Vectors that are multiplied at a time, one sum per register. A divisor of LANES.
_TOGETHER = 4


@kernel
def products_of_pairs(first: Any, vectors: Any, out: Any) -> None:
    """Write `first`, then <x_i, x_j> of all pairs i < j, to `out` [rows, ...]."""
    rows, fields, dim = vectors.shape
    beside, width = first.shape[1], out.shape[1]
    leading = min(beside, 1)
    count = fields + leading
    blocks = (count + LANES - 1) // LANES
    # Element k of LANES vectors at a time: [blocks, dim, LANES].
    turned = np.zeros(blocks * dim * LANES, np.float32)
    # Products of each with all: [count, blocks, LANES], and space for reads past the end.
    across = blocks * LANES
    matrix = np.zeros((across + 1) * across, np.float32)
    line = np.zeros(width + LANES, np.float32)
    for row in range(rows):
        copy(first, row * beside, line, 0, beside)
        for k in range(beside):
            turned[k * LANES] = first[row, k]
        for i in range(fields):
            start = (i + leading) // LANES * dim * LANES + (i + leading) % LANES
            for k in range(dim):
                turned[start + k * LANES] = vectors[row, i, k]
        for block in range(blocks):
            for i in range(0, min(block * LANES + LANES, count) - 1, _TOGETHER):
                one = two = three = four = zeros()
                these, those = i // LANES * dim * LANES + i % LANES, block * dim * LANES
                for k in range(0, dim * LANES, LANES):
                    others = load(turned, those + k)
                    one = multiply_add(spread(turned, these + k), others, one)
                    two = multiply_add(spread(turned, these + k + 1), others, two)
                    three = multiply_add(spread(turned, these + k + 2), others, three)
                    four = multiply_add(spread(turned, these + k + 3), others, four)
                at = i * across + block * LANES
                store(matrix, at, one)
                store(matrix, at + across, two)
                store(matrix, at + across * 2, three)
                store(matrix, at + across * 3, four)
        at = beside
        for i in range(count - 1):
            # Values written past the end are overwritten by the next i.
            for j in range(i + 1, count, LANES):
                store(line, at + j - i - 1, load(matrix, i * across + j))
            at += count - 1 - i
        copy(line, 0, out, row * width, width)


@kernel
def gradients_of_pairs(
    grads: Any, first: Any, vectors: Any, of_first: Any, of_vectors: Any
) -> None:
    """Write the gradients to `of_first` and `of_vectors`, from those of the result."""
    rows, fields, dim = vectors.shape
    beside, width = first.shape[1], grads.shape[1]
    leading = min(beside, 1)
    count = fields + leading
    # LANES elements of each vector at a time.
    given = np.zeros(count * LANES, np.float32)
    found = np.zeros(count * LANES, np.float32)
    pieces = 1 if dim == LANES else fields
    for row in range(rows):
        for block in range(0, dim, LANES):
            length = min(LANES, dim - block)
            copy(first, row * beside + block, given, 0, length * leading)
            copy(grads, row * width + block, found, 0, length * leading)
            at = row * fields * dim + block
            for i in range(pieces):
                to = (i + leading) * LANES
                copy(vectors, at + i * dim, given, to, length * fields // pieces)
            for i in range(leading * LANES, count * LANES, LANES):
                store(found, i, zeros())
            pair = row * width + beside
            for i in range(0, (count - 1) * LANES, LANES):
                x, of_x = load(given, i), load(found, i)
                for j in range(i + LANES, count * LANES, LANES):
                    grad = spread(grads, pair)
                    of_x = multiply_add(grad, load(given, j), of_x)
                    store(found, j, multiply_add(grad, x, load(found, j)))
                    pair += 1
                store(found, i, of_x)
            copy(found, 0, of_first, row * beside + block, length * leading)
            for i in range(pieces):
                begin = (i + leading) * LANES
                copy(found, begin, of_vectors, at + i * dim, length * fields // pieces)
