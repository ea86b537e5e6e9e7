"""Columns of bags: any number of ids in each row."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

import torch
from torch import Tensor

from flambeau.config.plural import number_of
from flambeau.errors import DataError, ModelError, NotATensorError


@final
@dataclass(frozen=True, eq=False)
class Jagged:
    """Bags of ids, `width` in each row, stored row by row.

    `ids` (int64 [n]) has the ids of all bags. `offsets` (int64 [rows * width + 1]) has the start of
    each bag, and the end of the last one. `values` [n] are weights of the ids, `fields` (int64 [n])
    their fields; either may be None. A bag may be empty, which stands for a missing id. `names` are
    the columns of the bags in a row, for messages.

    `row_shape` is set if every bag has at most one id, because the data has one id or none in each
    place: it is the shape of a row of the tensor that there would be if no id were missing.

    Pass it to `SparseEmbedding` as it is. torch's own functions do not accept it; `dense`, `each`
    and `by_field` convert it.
    """

    ids: Tensor
    offsets: Tensor
    values: Tensor | None = None
    fields: Tensor | None = None
    width: int = 1
    names: tuple[str, ...] = ()
    row_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        assert self.ids.dtype is torch.int64
        assert self.offsets.dtype is torch.int64
        assert (len(self.offsets) - 1) % self.width == 0, "a whole number of rows"

    def __len__(self) -> int:
        """Return the number of rows."""
        return (len(self.offsets) - 1) // self.width

    @property
    def lengths(self) -> Tensor:
        """Number of ids in each bag [rows * width]."""
        return self.offsets.diff()

    @property
    def rows(self) -> Tensor:
        """Row of each id [n]."""
        bags = torch.repeat_interleave(self.lengths)
        return bags if self.width == 1 else bags // self.width

    def slice(self, start: int, stop: int) -> "Jagged":
        """Return rows `start` to `stop`; ids are not copied."""
        offsets = self.offsets[start * self.width : min(stop, len(self)) * self.width + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return self._of(lambda part: part[first:last], offsets - first)

    def take(self, rows: Tensor) -> "Jagged":
        """Return copies of the given rows, in that order."""
        count = len(rows) * self.width
        starts = self.offsets[:-1].view(-1, self.width)[rows].reshape(count)
        stops = self.offsets[1:].view(-1, self.width)[rows].reshape(count)
        return self._bags(starts, stops)

    def bags_at(self, places: Sequence[int]) -> "Jagged":
        """Return copies of the bags at some of the `width` places of each row."""
        chosen = torch.tensor(places)
        starts = self.offsets[:-1].view(-1, self.width)[:, chosen].reshape(-1)
        stops = self.offsets[1:].view(-1, self.width)[:, chosen].reshape(-1)
        row_shape = None if self.row_shape is None else (len(places),)
        names = tuple(self.names[place] for place in places) if self.names else ()
        found = self._bags(starts, stops, len(places))
        return replace(found, names=names, row_shape=row_shape)

    def to(self, device: torch.device) -> "Jagged":
        """Return the same bags on `device`."""

        def move(part: Tensor) -> Tensor:
            return part.to(device, non_blocking=True)

        return self._of(move, move(self.offsets))

    def each(self, width: int) -> "Jagged":
        """Return rows of exactly `width` ids as `width` bags of one id."""
        wrong = (self.lengths != width).nonzero()
        if self.width != 1 or len(wrong):
            row = int(wrong[0]) if len(wrong) else 0
            raise DataError(
                f"row {row} of the batch has {number_of(int(self.lengths[row]), 'id')}, not one "
                f"for each of {number_of(width, 'field')}; give fields with the ids (libffm), or "
                "use a model without fields"
            )
        offsets = torch.arange(len(self.ids) + 1)
        return replace(self, offsets=offsets, fields=None, width=width, row_shape=None)

    def by_field(self, count: int) -> "Jagged":
        """Return the ids of each row in `count` bags, by their fields (0 to `count` - 1)."""
        if self.fields is None or self.width != 1:
            raise DataError("these ids have no fields; read them from libffm, or give columns")
        if len(self.fields) and not 0 <= int(self.fields.min()) <= int(self.fields.max()) < count:
            low, high = int(self.fields.min()), int(self.fields.max())
            raise DataError(f"fields go from {low} to {high}; the model has {count}, from 0 on")
        from flambeau.data import jagged_kernels  # loads Numba, which is rarely needed

        order, offsets = jagged_kernels.by_field(self.offsets, self.fields, count)
        regrouped = self._of(lambda part: part[order], offsets)
        return replace(regrouped, fields=None, width=count, row_shape=None)

    def dense(self, size: int) -> Tensor:
        """Return rows [rows, size] with `values` (default 1) at the positions given by the ids."""
        if len(self.ids) and not 0 <= int(self.ids.min()) <= int(self.ids.max()) < size:
            low, high = int(self.ids.min()), int(self.ids.max())
            raise DataError(f"ids go from {low} to {high}; a dense row has places 0 to {size - 1}")
        values = torch.ones(len(self.ids)) if self.values is None else self.values
        out = values.new_zeros(len(self), size)
        return out.index_put_((self.rows, self.ids), values, accumulate=True)

    def plain(self) -> "Jagged":
        """Return the same ids as bags of any length, without values and fields."""
        return replace(self, values=None, fields=None, row_shape=None)

    def in_places(self, missing: int) -> Tensor:
        """Return the ids [rows, *row_shape], with `missing` where there is none."""
        assert self.row_shape is not None, "some bags may have several ids"
        out = self.ids.new_full((len(self.offsets) - 1,), missing)
        out[self.lengths == 1] = self.ids
        return out.view(len(self), *self.row_shape)

    def _bags(self, starts: Tensor, stops: Tensor, width: int | None = None) -> "Jagged":
        """Return the bags from `starts` to `stops` [bags], in that order."""
        lengths = stops - starts
        offsets = _offsets(lengths)
        shifts = torch.repeat_interleave(starts - offsets[:-1], lengths)
        places = shifts + torch.arange(len(shifts))
        return self._of(lambda part: part[places], offsets, width)

    def _of(
        self, change: Callable[[Tensor], Tensor], offsets: Tensor, width: int | None = None
    ) -> "Jagged":
        """Apply the same change to all per-id tensors."""
        values = None if self.values is None else change(self.values)
        fields = None if self.fields is None else change(self.fields)
        width = width or self.width
        return Jagged(change(self.ids), offsets, values, fields, width, row_shape=self.row_shape)

    def _refusal(self, what: str) -> str:
        """Return the error message for `what`, naming the columns whose bags are not one id."""
        wrong: list[int] = (self.lengths != 1).nonzero().flatten().tolist() if self.names else []
        # Other rows of the block that was read may be the reason.
        columns = sorted({self.names[bag % self.width] for bag in wrong} or self.names)
        shown = ", ".join(f"'{name}'" for name in columns) or "a jagged column"
        hint = next(iter(columns), "column")
        return (
            f"{what} was given {shown}, of which a row may have several ids, or none: pass it to a "
            f"SparseEmbedding, fill in what is missing in the data, or, if these are numbers and "
            f"no ids, with fill={{'{hint}': 0.0}}"
        )

    @classmethod
    def __torch_function__(
        cls, function: Any, kinds: Any, arguments: Any = (), named: Any = None
    ) -> NoReturn:
        name = getattr(function, "__name__", "this function")
        nested = [[each] if not isinstance(each, list | tuple) else each for each in arguments]
        given = [*itertools.chain.from_iterable(nested), *(named or {}).values()]
        jagged = next(each for each in given if isinstance(each, Jagged))
        raise ModelError(jagged._refusal(f"torch's {name}"))

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(Tensor, name) and not name.startswith("_"):
            raise NotATensorError(self._refusal(f"Tensor.{name}"))
        raise AttributeError(f"Jagged has no attribute {name!r}")


def from_lists(
    bags: Sequence[Sequence[int]], values: Sequence[Sequence[float]] | None = None
) -> Jagged:
    """Make one bag for each list of ids: `from_lists([[1, 2], [], [3]])`."""
    lengths = torch.tensor([len(bag) for bag in bags], dtype=torch.int64)
    ids = torch.tensor([number for bag in bags for number in bag], dtype=torch.int64)
    flat = None if values is None else torch.tensor([value for bag in values for value in bag])
    return Jagged(ids, _offsets(lengths), flat)


def from_rows(ids: Tensor) -> Jagged:
    """Make one bag for each row of a tensor [rows] or [rows, length]."""
    length = 1 if ids.dim() == 1 else ids.shape[1]
    return Jagged(ids.reshape(-1).long(), torch.arange(len(ids) + 1) * length)


def with_gaps(ids: Tensor, missing: int) -> Jagged:
    """Return the ids [rows] or [rows, width] without those that are equal to `missing`."""
    whole = _one_id_bags(ids)
    there = whole.ids != missing
    return replace(whole, ids=whole.ids[there], offsets=_offsets(there.long()))


def stack(members: Sequence[Tensor | Jagged]) -> Jagged:
    """Stack columns: a row has the bags of all; a tensor [rows, k] has k bags in each row."""
    parts = [part if isinstance(part, Jagged) else _one_id_bags(part) for part in members]
    width = sum(part.width for part in parts)
    lengths = torch.cat([part.lengths.view(len(part), part.width) for part in parts], dim=1)
    offsets = _offsets(lengths.reshape(-1))
    places = _places(parts, offsets, width)
    ids = _merge([part.ids for part in parts], places, torch.int64)
    values = None
    if any(part.values is not None for part in parts):
        values = _merge([_values(part) for part in parts], places, torch.float32)
    in_places = all(part.row_shape is not None for part in parts)
    row_shape = (width,) if in_places else None
    return Jagged(ids, offsets, values, width=width, row_shape=row_shape)


def concatenate(parts: Sequence[Tensor | Jagged]) -> Jagged:
    """Return the rows of several columns of one width, one after the other."""
    first = next((part for part in parts if isinstance(part, Jagged)), None)
    stacked = first is not None and (first.width > 1 or first.row_shape is not None)
    bags = _one_id_bags if stacked else from_rows
    jagged = [part if isinstance(part, Jagged) else bags(part) for part in parts]
    first = jagged[0]
    counts = torch.tensor([0, *[len(part.ids) for part in jagged[:-1]]]).cumsum(0)
    shifted = [part.offsets[1:] + shift for part, shift in zip(jagged, counts, strict=True)]
    values = fields = None
    if any(part.values is not None for part in jagged):
        values = torch.cat([_values(part) for part in jagged])
    if first.fields is not None:
        fields = torch.cat([part.fields for part in jagged if part.fields is not None])
    ids = torch.cat([part.ids for part in jagged])
    offsets = torch.cat([torch.zeros(1).long(), *shifted])
    in_places = all(part.row_shape is not None for part in jagged)
    row_shape = first.row_shape if in_places else None
    return Jagged(ids, offsets, values, fields, first.width, row_shape=row_shape)


def one_id(ids: Tensor | Jagged, name: str) -> Tensor:
    """Return the id [rows] that identifies the subject of a row: that of its first field."""
    if isinstance(ids, Tensor):
        return ids if ids.dim() == 1 else ids[:, 0]
    first = ids.lengths.view(len(ids), ids.width)[:, 0]
    wrong = (first != 1).nonzero()
    if len(wrong):
        row = int(wrong[0, 0])
        raise DataError(
            f"row {row} of the batch has {int(first[row])} ids in the first field of '{name}'; it "
            "must be one, since it says which one it is"
        )
    return ids.ids[ids.offsets[:-1].view(len(ids), ids.width)[:, 0]]


def _one_id_bags(ids: Tensor) -> Jagged:
    row_shape = tuple(ids.shape[1:])
    width = row_shape[0] if row_shape else 1
    offsets = torch.arange(ids.numel() + 1)
    return Jagged(ids.reshape(-1).long(), offsets, width=width, row_shape=row_shape)


def _places(parts: Sequence[Jagged], offsets: Tensor, width: int) -> list[Tensor]:
    """Return the positions of each part's ids among all ids."""
    places, first = [], 0
    starts = offsets[:-1].view(-1, width)
    for part in parts:
        own = starts[:, first : first + part.width].reshape(-1)
        shifts = torch.repeat_interleave(own - part.offsets[:-1], part.lengths)
        places.append(shifts + torch.arange(len(part.ids)))
        first += part.width
    return places


def _merge(parts: Sequence[Tensor], places: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    out = torch.empty(sum(len(part) for part in parts), dtype=dtype)
    for part, place in zip(parts, places, strict=True):
        out[place] = part.to(dtype)
    return out


def _values(part: Jagged) -> Tensor:
    return torch.ones(len(part.ids)) if part.values is None else part.values


def _offsets(lengths: Tensor) -> Tensor:
    out = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=out[1:])
    return out
