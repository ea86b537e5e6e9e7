"""Columns of ids that are made of others."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flambeau.data.batch import Column
from flambeau.data.jagged import Jagged
from flambeau.errors import DataError


def cross(name: str, members: Sequence[Column]) -> Tensor | Jagged:
    """One id for each row, of one id from each member; none where one is missing."""
    from flambeau.data.text_hash import combine  # loads Numba, which few need

    parts = [_one_id(name, member) for member in members]
    present = torch.stack([there for _, there in parts]).all(dim=0)
    ids = torch.from_numpy(combine([ids.numpy() for ids, _ in parts], name))
    if bool(present.all()):
        return ids
    offsets = torch.zeros(len(ids) + 1, dtype=torch.int64)
    torch.cumsum(present, 0, out=offsets[1:])
    return Jagged(ids[present], offsets, row_shape=())


def _one_id(name: str, member: Column) -> tuple[Tensor, Tensor]:
    """Each row's id (anything where it is missing), and whether it is there."""
    if isinstance(member, Tensor) and member.dim() == 1 and not member.is_floating_point():
        return member.long(), torch.ones(len(member), dtype=torch.bool)
    if not isinstance(member, Jagged) or member.width != 1 or int(member.lengths.max()) > 1:
        raise DataError(f"crosses: '{name}' is made of columns with one id (or none) in a row")
    there = member.lengths == 1
    ids = torch.zeros(len(member), dtype=torch.int64)
    ids[there] = member.ids
    return ids, there
