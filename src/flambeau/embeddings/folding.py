"""The distinct ids of tensors, found once for all who ask."""

from collections import deque
from typing import Any, final

import numpy as np
from torch import Tensor

from flambeau.data.jagged import Jagged
from flambeau.embeddings.fields import by_field, field_ids
from flambeau.tables.ids import Ids
from flambeau.tables.row_kernels import Fold

#: Tables that look the same ids up, and the batch that is fetched early, come again soon.
REMEMBERED = 4

Folded = tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]

_Key = tuple[int, ...]


@final
class Folds:
    """Folds tensors of ids, and remembers the last few; a tensor must not change meanwhile."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._known: deque[tuple[_Key, Tensor, Folded]] = deque(maxlen=REMEMBERED)
        self._grouped: deque[tuple[_Key, Jagged, Jagged]] = deque(maxlen=REMEMBERED)
        self._salted: deque[tuple[_Key, Tensor | Jagged, Tensor]] = deque(maxlen=REMEMBERED)

    def __call__(self, ids: Tensor) -> Folded:
        """The distinct ones of `ids` in order of appearance, and for each id which it is."""
        ids = ids.reshape(-1).contiguous()
        if not _tells_changes(ids):
            return self._fold(ids.cpu().numpy())
        key = (ids.data_ptr(), ids.numel(), ids._version)
        for known, _, folded in self._known:
            if known == key:
                return folded
        folded = self._fold(ids.cpu().numpy())
        # The tensor is kept, so that its memory is not given to another one.
        self._known.append((key, ids, folded))
        return folded

    def grouped(self, ids: Jagged, fields: int) -> Jagged:
        """The bags as `by_field` gives them."""
        if not _tells_changes(ids):
            return by_field(ids, fields)
        key = (*_key(ids), fields)
        for known, _, grouped in self._grouped:
            if known == key:
                return grouped
        grouped = by_field(ids, fields)
        self._grouped.append((key, ids, grouped))
        return grouped

    def flat(self, ids: Tensor | Jagged, fields: int | None) -> Tensor:
        """The ids [n] that a look-up uses; of `fields`, each with its own ones."""
        given = ids.ids if isinstance(ids, Jagged) else ids
        if fields is None:
            return given.reshape(-1)
        if isinstance(ids, Jagged):
            ids = self.grouped(ids, fields)
        if not _tells_changes(ids):
            return field_ids(ids, fields)
        key = (*_key(ids), fields)
        for known, _, salted in self._salted:
            if known == key:
                return salted
        salted = field_ids(ids, fields)
        self._salted.append((key, ids, salted))
        return salted

    def arrays(self, ids: Ids) -> Folded:
        """The same for an array, which is not remembered."""
        return self._fold(ids)


def _tells_changes(ids: Tensor | Jagged) -> bool:
    """Tensors of inference mode do not count their changes."""
    return not any(part.is_inference() for part in _parts(ids))


def _key(ids: Tensor | Jagged) -> _Key:
    """What tells ids from all others, as long as they are kept."""
    return tuple(
        number for part in _parts(ids) for number in (part.data_ptr(), part.numel(), part._version)
    )


def _parts(ids: Tensor | Jagged) -> list[Tensor]:
    if isinstance(ids, Tensor):
        return [ids]
    return [part for part in (ids.ids, ids.offsets, ids.fields) if part is not None]
