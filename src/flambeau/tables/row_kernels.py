"""Moving rows between slabs and batches."""

from typing import Any

from flambeau.kernels.compiled import AHEAD, carray, inlined, kernel, pointer, prefetch

_LINE = 64


@inlined
def address_of(slabs: Any, shift: Any, row: Any, row_bytes: Any) -> Any:
    """Where a row begins. `slabs` and `shift` are a `slabs.Place`.

    Kernels take a place apart before their loops: inside, that would count references each time.
    """
    return slabs[row >> shift] + (row & ((1 << shift) - 1)) * row_bytes


@inlined
def row_in(slabs: Any, shift: Any, row: Any, width: Any, like: Any) -> Any:
    """A row as an array of `width` numbers of the type of `like`."""
    address = address_of(slabs, shift, row, width * like.itemsize)
    return carray(pointer(address), (width,), like.dtype)


@inlined
def later(rows: Any, i: Any) -> Any:
    """The row, or id, whose turn comes some time after the i-th."""
    return rows[min(i + AHEAD, rows.size - 1)]


@inlined
def prefetch_row(slabs: Any, shift: Any, row: Any, row_bytes: Any) -> Any:
    """Ask for the memory of a row, if it is not -1."""
    if row >= 0:
        address = address_of(slabs, shift, row, row_bytes)
        end = address + row_bytes
        while address < end:
            prefetch(address)
            address += _LINE


@kernel
def gather(rows: Any, out: Any, default: Any, place: Any) -> None:
    """`out[i]` becomes row `rows[i]`, or `default` where that is -1. [n, width]"""
    slabs, shift = place
    width = out.shape[1]
    for i in range(rows.size):
        prefetch_row(slabs, shift, later(rows, i), width * out.itemsize)
        source = default if rows[i] < 0 else row_in(slabs, shift, rows[i], width, out)
        for j in range(width):
            out[i, j] = source[j]


@kernel
def scatter(rows: Any, values: Any, place: Any) -> None:
    """Row `rows[i]` becomes `values[i]`; rows of -1 are left out."""
    slabs, shift = place
    width = values.shape[1]
    for i in range(rows.size):
        prefetch_row(slabs, shift, later(rows, i), width * values.itemsize)
        if rows[i] >= 0:
            target = row_in(slabs, shift, rows[i], width, values)
            for j in range(width):
                target[j] = values[i, j]


@kernel
def sum_by(inverse: Any, values: Any, out: Any) -> None:
    """Add `values[i]` to `out[inverse[i]]`."""
    width = values.shape[1]
    for i in range(inverse.size):
        target = inverse[i]
        for j in range(width):
            out[target, j] += values[i, j]
