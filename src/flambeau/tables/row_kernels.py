"""Kernels that move rows between slabs and batches."""

from typing import Any

from flambeau.kernels.compiled import AHEAD, carray, inlined, kernel, pointer, prefetch

_LINE = 64


@inlined
def address_of(slabs: Any, shift: Any, row: Any, row_bytes: Any) -> Any:
    """Return the address of a row. `slabs` and `shift` are the parts of a `slabs.Place`.

    Kernels unpack a place before their loops: inside, it would count references each time.
    """
    return slabs[row >> shift] + (row & ((1 << shift) - 1)) * row_bytes


@inlined
def row_in(slabs: Any, shift: Any, row: Any, width: Any, like: Any) -> Any:
    """Return a row as an array of `width` numbers of the type of `like`, without a copy."""
    address = address_of(slabs, shift, row, width * like.itemsize)
    return carray(pointer(address), (width,), like.dtype)


@inlined
def later(rows: Any, i: Any) -> Any:
    """Return the row, or id, that a loop reaches `AHEAD` items after the i-th, to prefetch it."""
    return rows[min(i + AHEAD, rows.size - 1)]


@inlined
def prefetch_row(slabs: Any, shift: Any, row: Any, row_bytes: Any) -> Any:
    """Prefetch the memory of a row, unless it is -1."""
    if row >= 0:
        address = address_of(slabs, shift, row, row_bytes)
        end = address + row_bytes
        while address < end:
            prefetch(address)
            address += _LINE


@kernel
def gather(rows: Any, out: Any, default: Any, place: Any) -> None:
    """Copy row `rows[i]` to `out[i]` [n, width], or `default` where the row is -1."""
    slabs, shift = place
    width = out.shape[1]
    for i in range(rows.size):
        prefetch_row(slabs, shift, later(rows, i), width * out.itemsize)
        source = default if rows[i] < 0 else row_in(slabs, shift, rows[i], width, out)
        for j in range(width):
            out[i, j] = source[j]


@kernel
def scatter(rows: Any, values: Any, place: Any) -> None:
    """Copy `values[i]` [n, width] to row `rows[i]`; skip rows that are -1."""
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
    """Add `values[i]` to `out[inverse[i]]` for each i."""
    width = values.shape[1]
    for i in range(inverse.size):
        target = inverse[i]
        for j in range(width):
            out[target, j] += values[i, j]
