"""The contents of requests, checked against the shard before anything is changed.

All functions raise `ProtocolError` for malformed messages.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from flambeau.errors import ProtocolError
from flambeau.parameter_server import buffers
from flambeau.parameter_server.compression import decode
from flambeau.parameter_server.dense_layout import DenseLayout
from flambeau.parameter_server.dense_range import DenseRange
from flambeau.parameter_server.gradient import Gradient
from flambeau.parameter_server.protocol import Load, Push, TablePart
from flambeau.parameter_server.shard import ServerShard
from flambeau.tables.index.ids import Ids
from flambeau.tables.table import Table

Array = np.ndarray[Any, Any]
Frames = Sequence[Any]


def layout(values: dict[str, Any] | None) -> DenseLayout | None:
    """Return the layout of a worker's dense weights, if it has any."""
    if values is None:
        return None
    try:
        return msgspec.convert(values, DenseLayout)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"a layout of dense weights that is malformed: {error}") from None


def first_rows(shard: ServerShard, message: Load, frames: Frames) -> tuple[Table, Ids, Array]:
    """Return a table, and the ids and values of its first rows."""
    table = _table(shard, message.table)
    ids, rows = _require(frames, 2)
    values = buffers.rows(rows, message.count, table.spec.dim, table.dtype)
    return table, buffers.ids(ids, message.count), values


def first_values(dense: DenseRange, frames: Frames) -> Array:
    """Return the first values of a range of dense weights."""
    (given,) = _require(frames, 1)
    return buffers.numbers(given, dense.values.size, dense.values.dtype)


def wanted(shard: ServerShard, parts: Sequence[TablePart], frames: Frames) -> list[tuple[int, Ids]]:
    """Return the ids to read, with the numbers of their tables."""
    found = []
    for part, frame in zip(parts, _require(frames, len(parts)), strict=True):
        _table(shard, part.table)
        found.append((part.table, buffers.ids(frame, part.count)))
    return found


def wanted_back(shard: ServerShard, message: Push, frames: Frames) -> list[tuple[int, Ids]]:
    """Return the ids to read after an update, with the numbers of their tables."""
    return wanted(shard, message.want, frames[len(frames) - len(message.want) :])


def gradient(shard: ServerShard, message: Push, frames: Frames) -> Gradient:
    """Return the gradient of a push."""
    _require(frames, 2 * len(message.parts) + message.dense + len(message.want))
    found = Gradient(absent=frozenset(message.absent), rates=message.rates, factor=message.factor)
    for index, part in enumerate(message.parts):
        table = _table(shard, part.table)
        ids = buffers.ids(frames[2 * index], part.count)
        numbers = part.count * table.spec.dim
        grads = decode(frames[2 * index + 1], message.compression, table.dtype, numbers)
        found.tables[part.table] = (ids, grads.reshape(part.count, table.spec.dim))
    if message.dense:
        found.dense = _dense_gradient(shard, message, frames[2 * len(message.parts)])
    return found


def _dense_gradient(shard: ServerShard, message: Push, frame: Any) -> Array:
    if shard.dense is None or shard.layout is None:
        raise ProtocolError("a dense gradient for a shard without dense weights")
    groups = len(shard.layout.groups)
    if len(message.rates) != groups:
        raise ProtocolError(f"{len(message.rates)} learning rates for {groups} groups")
    values = shard.dense.values
    return decode(frame, message.compression, values.dtype, values.size)


def _table(shard: ServerShard, number: int) -> Table:
    if not 0 <= number < len(shard.tables):
        raise ProtocolError(f"there is no table number {number}")
    return shard.tables[number]


def _require(frames: Frames, count: int) -> Frames:
    if len(frames) != count:
        raise ProtocolError(f"a message with {len(frames)} buffers instead of {count}")
    return frames
