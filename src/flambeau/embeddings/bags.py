"""Validation of the ids that modules accept, and the ends of their bags."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flambeau.config.plural import number_of
from flambeau.data.jagged import Jagged
from flambeau.errors import ModelError

#: The most ids per call: the kernels count positions with int32.
MOST_IDS = 2**31 - 1
#: Permitted types of ids; those that are narrower than int64 are widened.
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_ids(table: str, ids: Tensor) -> None:
    """Raise `ModelError` unless ids are integers of at most 64 bits."""
    if not isinstance(ids, Tensor):
        raise ModelError(f"table '{table}': ids are a {type(ids).__name__}; give an int64 tensor")
    if ids.dtype not in WHOLE:
        raise ModelError(
            f"table '{table}': ids are {ids.dtype}, not int64: convert the column in the data (a "
            "float does not hold every id), or in forward() with ids.long()"
        )
    if ids.numel() > MOST_IDS:
        raise ModelError(f"table '{table}': {ids.numel()} ids in one call; at most {MOST_IDS}")


def check_fields(table: str, ids: Tensor, fields: int) -> None:
    """Raise `ModelError` unless the last dimension of the ids is the number of fields."""
    if ids.dim() == 0 or ids.shape[-1] != fields:
        raise ModelError(
            f"table '{table}': ids have shape {tuple(ids.shape)}; give one id for each of {fields} "
            "fields, [rows, fields]"
        )


def checked_places(table: str, fields: int | None, only: Sequence[int]) -> tuple[int, ...]:
    """Return the fields of a lookup of some fields; raise unless valid and ascending."""
    places = tuple(only)
    if fields is None or not places or list(places) != sorted({*places} & {*range(fields)}):
        raise ModelError(
            f"table '{table}': only={places} with fields={fields}; give some fields from 0 to "
            "fields - 1, in ascending order"
        )
    return places


def check_width(table: str, ids: Jagged, fields: int | None, pooling: str) -> None:
    """Raise `ModelError` unless each field has one bag, and several bags in a row are pooled."""
    if fields is not None and ids.width != fields:
        raise ModelError(
            f"table '{table}': a row has {number_of(ids.width, 'bag')} of ids; give one for each "
            f"of {number_of(fields, 'field')}"
        )
    in_places = ids.row_shape is not None
    if pooling == "none" and not in_places and (ids.width != 1 or fields is not None):
        raise ModelError(
            f"table '{table}': {ids.width} bags in a row need pooling='sum', 'mean' or 'max'"
        )


def check_weights(
    table: str, pooling: str, ids: Tensor, weights: Tensor, dtype: torch.dtype
) -> None:
    """Raise `ModelError` unless weights are for a sum, one per id, of the table's type."""
    if pooling not in ("sum", "sum_and_squares"):
        raise ModelError(
            f"table '{table}': weights are for pooling='sum', not '{pooling}'; leave them out"
        )
    if weights.shape != ids.shape:
        given, right = tuple(weights.shape), tuple(ids.shape)
        raise ModelError(f"table '{table}': weights have shape {given}, ids {right}; give one each")
    if weights.dtype is not dtype:
        raise ModelError(f"table '{table}': weights are {weights.dtype}; give {dtype} as its rows")


def ends_of_rows(table: str, ids: Tensor) -> Tensor:
    """Return the ends of bags (int32 [bags + 1], from 0) that are the last dimension of `ids`."""
    if ids.dim() == 0:
        raise ModelError(
            f"table '{table}': one id without dimensions cannot be pooled; give ids [..., length]"
        )
    length = ids.shape[-1]
    bags = ids.shape[:-1].numel()
    return torch.arange(bags + 1, dtype=torch.int32) * length


def ends_of_offsets(table: str, ids: Tensor, offsets: Tensor, include_last: bool) -> Tensor:
    """Return the ends of bags (int32 [bags + 1], from 0) from their starts.

    With `include_last` the offsets end with the number of ids.
    """
    if ids.dim() != 1:
        raise ModelError(
            f"table '{table}': ids of shape {tuple(ids.shape)} with offsets; give 1-D ids, or "
            "leave the offsets out to make each last dimension a bag"
        )
    if offsets.dtype is not torch.int64 or offsets.dim() != 1:
        raise ModelError(
            f"table '{table}': offsets are {offsets.dtype} of shape {tuple(offsets.shape)}; give "
            "torch.int64 [bags]"
        )
    starts = offsets.cpu()
    if problem := _problem_with(starts, len(ids), include_last):
        raise ModelError(f"table '{table}': offsets {problem}")
    ends = starts if include_last else torch.cat([starts, torch.tensor([len(ids)])])
    return ends.int()


def _problem_with(starts: Tensor, count: int, include_last: bool) -> str | None:
    """Describe the fault in the starts of bags of `count` ids; None if there is no fault."""
    if len(starts) == 0 and count == 0 and not include_last:
        return None
    if len(starts) == 0 or int(starts[0]) != 0:
        return f"begin with {starts[:1].tolist()}; the first bag starts at 0"
    falls = (starts.diff() < 0).nonzero()
    if len(falls):
        at = int(falls[0])
        pair = starts[at : at + 2].tolist()
        return f"decrease at position {at + 1}: {pair}; give the starts of the bags in order"
    last = int(starts[-1])
    if include_last and last != count:
        return (
            f"end with {last}; with include_last_offset=True, end with the number of ids, {count}"
        )
    return f"end with {last}, behind the last of {count} ids" if last > count else None
