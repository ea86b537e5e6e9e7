"""Lookups of a model: found by calling it, and described as positions in its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from flambeau.config.settings import Settings
from flambeau.data.jagged import Jagged, from_rows
from flambeau.embeddings.fields import field_ids
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import DataError, FlambeauError, ModelError
from flambeau.inference.arguments import Arguments, Leaf
from flambeau.inference.lookup_sites import replaced

Form = Literal["tensor", "jagged", "each", "by_field"]


class ColumnRange(Settings):
    """Columns `first` to `last` of an argument with flattened rows."""

    argument: str
    first: int = 0
    last: int = 0


class Lookup(Settings):
    """One lookup of a model, in the order of calls.

    The ids are the `pieces` side by side, reshaped to `shape` (-1: rows). If they are jagged, they
    are one argument: unchanged, with `fields` bags of `each` id in turn, or grouped `by_field`.
    `field_salts` are combined with the ids by exclusive or, one for each field; with `only`, rows
    are those of these fields. With `mask`, the result is padded, and a second input is the mask of
    the existing ids.
    """

    table: str
    dim: int
    dtype: Literal["float32", "float64"]
    pooling: str
    fields: int | None = None
    field_salts: tuple[int, ...] = ()
    only: tuple[int, ...] | None = None
    form: Form
    pieces: tuple[ColumnRange, ...]
    shape: tuple[int, ...] = ()
    mask: bool = False

    @property
    def squares(self) -> bool:
        """Return whether a second result follows: the sum of the rows' squares."""
        return self.pooling == "sum_and_squares"

    def ids(self, values: Mapping[str, Leaf]) -> Leaf:
        """Return the ids of this lookup, from the arguments by name."""
        first = values[self.pieces[0].argument]
        each = self.pooling == "none" and not self.mask
        if self.form != "tensor":
            if each:
                return _in_places(first, self.pieces[0].argument)
            bags = first.plain() if self.mask and isinstance(first, Jagged) else first
            bags = bags if isinstance(bags, Jagged) else _as_bags(bags, self.fields)
            return _formed(bags, self.form, self.fields or 1)
        if isinstance(first, Jagged) and len(self.pieces) == 1:
            if not each:
                return first  # pooled like the ids of the example
            if first.row_shape == self.shape[1:]:
                return first
        parts = [_columns(values[piece.argument], piece) for piece in self.pieces]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return whole.reshape(self.shape)


@final
@dataclass(frozen=True)
class Call:
    """A recorded lookup: its embedding and its ids."""

    rows: SparseEmbedding
    ids: Leaf


def record_calls(model: nn.Module, arguments: Arguments, values: Mapping[str, Leaf]) -> list[Call]:
    """Return the lookups that the model makes with these arguments, in order."""
    calls: list[Call] = []

    class Recorder(nn.Module):
        def __init__(self, rows: SparseEmbedding) -> None:
            super().__init__()
            self.rows = rows

        def forward(self, ids: Leaf) -> Any:
            calls.append(Call(self.rows, ids))
            return self.rows(ids)

    copied = replaced(model, Recorder)
    positional, named = arguments.together(values)
    with torch.inference_mode():
        copied(*positional, **named)
    return calls


def find_lookups(
    model: nn.Module, arguments: Arguments, values: Mapping[str, Leaf]
) -> tuple[Lookup, ...]:
    """Return the model's lookups; raise `ModelError` for ids that forward() computes."""
    marked = _marked(model, arguments, values)
    rows = next(len(value) for value in values.values())
    return tuple(
        _described(call, number, marked, rows)
        for number, call in enumerate(record_calls(model, arguments, marked))
    )


def _marked(model: nn.Module, arguments: Arguments, values: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Return the arguments with a different id in every place, if the model accepts any id."""
    used = _looked_up(record_calls(model, arguments, values))
    marked = dict(values)
    next_id = 1 << 29
    for name, value in values.items():
        ids = value.ids if isinstance(value, Jagged) else value
        if ids.dtype not in (torch.int64, torch.int32) or not np.isin(ids.numpy(), used).any():
            continue
        fresh = torch.arange(next_id, next_id + ids.numel(), dtype=ids.dtype).view(ids.shape)
        tried = replace(value, ids=fresh) if isinstance(value, Jagged) else fresh
        next_id += ids.numel()
        try:
            record_calls(model, arguments, {**marked, name: tried})
        except (IndexError, RuntimeError, FlambeauError):
            continue  # numbers with another meaning and a limited range
        marked[name] = tried
    return marked


def _looked_up(calls: list[Call]) -> np.ndarray[Any, Any]:
    parts = [call.ids.ids if isinstance(call.ids, Jagged) else call.ids for call in calls]
    return np.concatenate([part.reshape(-1).numpy() for part in parts] or [np.empty(0, np.int64)])


def _described(call: Call, number: int, values: Mapping[str, Leaf], rows: int) -> Lookup:
    spec, module = call.rows.spec, call.rows
    form: Form | None = "tensor"
    shape: tuple[int, ...] = ()
    if isinstance(call.ids, Jagged):
        form, pieces = _jagged_form(call.ids, values)
    else:
        pieces, shape = _pieces(call.ids, values, rows), _shape(call.ids, rows)
    if form is None or pieces is None:
        raise ModelError(
            f"lookup {number + 1} (table '{spec.name}') has ids that forward() computes, and not "
            "columns of its arguments: prepare them in the data, or let the graph do the lookup "
            "(inside_mb= above the size of the tables)"
        )
    fields = call.ids.width if form in ("each", "by_field") else module.fields  # type: ignore[union-attr]
    return Lookup(
        table=spec.name,
        dim=spec.dim,
        dtype="float64" if spec.dtype == "fp64" else "float32",
        pooling=module.pooling,
        fields=fields,
        field_salts=field_salts(module.fields),
        only=module.only,
        form=form,
        pieces=pieces,
        shape=shape,
        mask=isinstance(call.ids, Jagged)
        and call.ids.row_shape is None
        and module.pooling == "none",
    )


def field_salts(fields: int | None) -> tuple[int, ...]:
    """Return the salts that are combined with the ids of each field."""
    if fields is None:
        return ()
    return tuple(field_ids(torch.zeros(fields, dtype=torch.int64), fields).tolist())


def _jagged_form(
    ids: Jagged, values: Mapping[str, Leaf]
) -> tuple[Form | None, tuple[ColumnRange, ...] | None]:
    forms: tuple[Form, ...] = ("jagged", "each", "by_field")
    for name, value in values.items():
        if isinstance(value, Jagged):
            for form in forms:
                if _same(ids, value, form):
                    return form, (ColumnRange(argument=name),)
    return None, None


def _same(ids: Jagged, value: Jagged, form: Form) -> bool:
    if form == "by_field" and value.fields is None:
        return False
    try:
        found = _formed(value, form, ids.width)
    except FlambeauError:
        return False
    same = found.width == ids.width and torch.equal(found.ids, ids.ids)
    return same and torch.equal(found.offsets, ids.offsets)


def _formed(value: Jagged, form: Form, width: int) -> Jagged:
    if form == "each":
        return value.each(width)
    return value.by_field(width) if form == "by_field" else value


def _pieces(ids: Tensor, values: Mapping[str, Leaf], rows: int) -> tuple[ColumnRange, ...] | None:
    """Return the columns of which the ids of all rows consist, or None if they do not."""
    if not ids.numel() or ids.numel() % rows:
        return None
    flat = ids.reshape(rows, -1)
    found = [_column(flat[:, place], values) for place in range(flat.shape[1])]
    pieces: list[ColumnRange] = []
    for each in found:
        if each is None:
            return None
        name, column = each
        if pieces and pieces[-1].argument == name and pieces[-1].last == column:
            pieces[-1] = ColumnRange(argument=name, first=pieces[-1].first, last=column + 1)
        else:
            pieces.append(ColumnRange(argument=name, first=column, last=column + 1))
    return tuple(pieces)


def _column(ids: Tensor, values: Mapping[str, Leaf]) -> tuple[str, int] | None:
    for name, value in values.items():
        if isinstance(value, Tensor) and not value.is_floating_point():
            flat = value.reshape(len(value), -1)
            same = (flat == ids[:, None]).all(dim=0).nonzero().flatten().tolist()
            if same:
                return name, int(same[0])
    return None


def _as_bags(ids: Tensor, fields: int | None) -> Jagged:
    """Return lists that happen to have equal lengths as bags; `fields` of one id each."""
    if fields is None or ids.dim() == 1 or ids.shape[1] != fields:
        return from_rows(ids)
    return Jagged(ids.reshape(-1).long(), torch.arange(ids.numel() + 1), width=fields)


def _in_places(ids: Leaf, argument: str) -> Leaf:
    """Return the ids; raise `DataError` if a place has several."""
    if isinstance(ids, Jagged) and ids.row_shape is None:
        raise DataError(
            f"'{argument}' has several ids in a row, and the model was trained with one or none: "
            "give one, or train with SparseEmbedding(..., pooling='sum')"
        )
    return ids


def _columns(value: Leaf, piece: ColumnRange) -> Tensor:
    if isinstance(value, Jagged):
        raise DataError(
            f"'{piece.argument}' has missing ids, or several in a row; the model was exported with "
            "rows that have one in each place: export it with data= that is like this (on the "
            "command line --data)"
        )
    return value.reshape(len(value), -1)[:, piece.first : piece.last].long()


def _shape(ids: Tensor, rows: int) -> tuple[int, ...]:
    whole = list(ids.shape)
    return (-1, *whole[1:]) if len(whole) == 1 or whole[0] == rows else tuple(whole)
