"""One table for many fields: equal ids of different fields are different ids in the table."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from flambeau.data.jagged import Jagged
from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix

#: The fields that a table has, in ascending order; None: all.
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
    """The ids [n] in the table for those of a tensor [..., fields], or of bags of that width.

    An id and its field are put together by exclusive or with 64 bits of the field's own: twice the
    same field gives the id back. With `only`, the ids are those of these fields, in that order.
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
    """The id in the table of one id of one field, and the other way round."""
    return int(field_ids(torch.tensor([0] * field + [id]), field + 1)[-1])


def by_field(ids: Jagged, fields: int) -> Jagged:
    """The bags with one of them for each field, or as they are if there are several in a row.

    Ids that know their fields (libffm) are grouped by them; those of rows that have as many as
    there are fields belong to one each.
    """
    if ids.width != 1 or (fields == 1 and ids.fields is None):
        return ids
    return ids.each(fields) if ids.fields is None else ids.by_field(fields)
