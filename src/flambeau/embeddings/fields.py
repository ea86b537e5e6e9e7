"""One table for many fields: equal ids of different fields are different ids in the table."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from flambeau.data.jagged import Jagged
from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix

#: Fields that use a table, in ascending order; None means all.
Only = tuple[int, ...] | None


@kernel
def _salt(ids: Any, fields: int, out: Any) -> None:
    for i in range(ids.size):
        out[i] = ids[i] ^ np.int64(mix(i % fields + 1))


@kernel
def _salt_bags(ids: Any, offsets: Any, salts: Any, out: Any) -> None:
    for bag in range(offsets.size - 1):
        salt = salts[bag % salts.size]
        for i in range(offsets[bag], offsets[bag + 1]):
            out[i] = ids[i] ^ salt


@kernel
def _salt_places(ids: Any, salts: Any, places: Any, out: Any) -> None:
    for row in range(ids.shape[0]):
        for n in range(places.size):
            out[row, n] = ids[row, places[n]] ^ salts[n]


@kernel
def _salts(places: Any, out: Any) -> None:
    for n in range(places.size):
        out[n] = np.int64(mix(places[n] + 1))


def field_ids(ids: Tensor | Jagged, fields: int, only: Only = None) -> Tensor:
    """Return the table's ids [n] for ids [..., fields], or for bags of that width.

    An id is combined by exclusive or with 64 bits that depend on the field; applying the same field
    again restores the id. With `only`, the ids are those of these fields, in that order.
    """
    places = np.arange(fields) if only is None else np.array(only, np.int64)
    if isinstance(ids, Jagged):
        bags = ids if only is None else ids.bags_at(only)
        given = bags.ids.cpu().numpy()
        out = np.empty(given.size, np.int64)
        _salt_bags(given, bags.offsets.cpu().numpy(), _salts_of(places), out)
    elif only is not None:
        given = ids.reshape(-1, fields).contiguous().cpu().numpy()
        out = np.empty((len(given), places.size), np.int64)
        _salt_places(given, _salts_of(places), places, out)
    else:
        given = ids.reshape(-1).contiguous().cpu().numpy()
        out = np.empty(given.size, np.int64)
        _salt(given, fields, out)
    return torch.from_numpy(out.reshape(-1))


def _salts_of(places: Any) -> Any:
    out = np.empty(places.size, np.int64)
    _salts(places, out)
    return out


def table_id(id: int, field: int) -> int:
    """Return the table's id for an id of a field, and vice versa."""
    return int(field_ids(torch.tensor([0] * field + [id]), field + 1)[-1])


def by_field(ids: Jagged, fields: int) -> Jagged:
    """Return the bags divided by field, or unchanged if a row has several bags.

    Ids that record their fields (libffm) are grouped by them; in rows with as many ids as fields,
    each id belongs to one field.
    """
    if ids.width != 1 or (fields == 1 and ids.fields is None):
        return ids
    return ids.each(fields) if ids.fields is None else ids.by_field(fields)
