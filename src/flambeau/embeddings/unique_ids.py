"""The distinct ids of tensors, found once for all callers."""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from flambeau.data.jagged import Jagged
from flambeau.embeddings.fields import Only, by_field, field_ids
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.unique_ids import Fold

#: Tables with the same ids, and the batch that is fetched early, repeat soon.
REMEMBERED = 4

Folded = tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]

#: Result to compute from ids. Cache keys consist of it and the place of the ids in memory.
_What = int | tuple[int, Only]
_Key = tuple[_What, *tuple[int, ...]]
Made = TypeVar("Made")


@final
class Folds:
    """Finder of distinct ids that caches its last results; a tensor must not change meanwhile."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._known: _Remembered[Folded] = _Remembered()
        self._grouped: _Remembered[Jagged] = _Remembered()
        self._chosen: _Remembered[Jagged] = _Remembered()
        self._salted: _Remembered[Tensor] = _Remembered()
        self._widened: _Remembered[Tensor] = _Remembered()

    def __call__(self, ids: Tensor) -> Folded:
        """Return the distinct ids in order of appearance, and each id's position among them."""
        ids = ids.reshape(-1).contiguous()
        return self._known.get(ids, 0, lambda: self._fold(ids.cpu().numpy()))

    def grouped(self, ids: Jagged, fields: int) -> Jagged:
        """Return the bags as `by_field` returns them."""
        return self._grouped.get(ids, fields, lambda: by_field(ids, fields))

    def chosen(self, ids: Jagged, fields: int, only: tuple[int, ...]) -> Jagged:
        """Return the bags of the fields `only`, of those that `grouped` returns."""
        bags = self.grouped(ids, fields)
        return self._chosen.get(bags, (fields, only), lambda: bags.bags_at(only))

    def flat(self, ids: Tensor | Jagged, fields: int | None, only: Only = None) -> Tensor:
        """Return the ids (int64 [n]) that a lookup uses; with `fields`, each field has its own.

        With `only`, returns the ids of these fields.
        """
        if isinstance(ids, Tensor) and ids.dtype is not torch.int64:
            ids = self._widened.get(ids, 0, ids.long)
        if fields is None:
            return (ids.ids if isinstance(ids, Jagged) else ids).reshape(-1)
        bags = self.grouped(ids, fields) if isinstance(ids, Jagged) else ids
        return self._salted.get(bags, (fields, only), lambda: field_ids(bags, fields, only))

    def arrays(self, ids: Ids) -> Folded:
        """Return distinct ids and positions for an array, without caching."""
        return self._fold(ids)


@final
class _Remembered(Generic[Made]):
    """Cache of results for the last few ids."""

    def __init__(self) -> None:
        # The ids are kept, so that their memory is not reused.
        self._known: deque[tuple[_Key, Tensor | Jagged, Made]] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, ids: Tensor | Jagged, what: _What, make: Callable[[], Made]) -> Made:
        """Return the cached result for these ids, or compute it with `make`."""
        parts = _parts(ids)
        if any(part.is_inference() for part in parts):
            return make()  # such a tensor does not record whether it has changed
        key: _Key = (what, *(n for p in parts for n in (p.data_ptr(), p.numel(), p._version)))
        for known, _, made in self._known:
            if known == key:
                return made
        made = make()
        self._known.append((key, ids, made))
        return made


def _parts(ids: Tensor | Jagged) -> list[Tensor]:
    if isinstance(ids, Tensor):
        return [ids]
    return [part for part in (ids.ids, ids.offsets, ids.fields) if part is not None]
