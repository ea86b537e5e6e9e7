"""The distinct ids of tensors, found once for all who ask."""

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

#: Tables that look the same ids up, and the batch that is fetched early, come again soon.
REMEMBERED = 4

Folded = tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]

#: What is wanted of ids, beside where they are in memory.
_What = int | tuple[int, Only]
_Key = tuple[_What, *tuple[int, ...]]
Made = TypeVar("Made")


@final
class Folds:
    """Folds tensors of ids, and remembers the last few; a tensor must not change meanwhile."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._known: _Remembered[Folded] = _Remembered()
        self._grouped: _Remembered[Jagged] = _Remembered()
        self._chosen: _Remembered[Jagged] = _Remembered()
        self._salted: _Remembered[Tensor] = _Remembered()
        self._widened: _Remembered[Tensor] = _Remembered()

    def __call__(self, ids: Tensor) -> Folded:
        """The distinct ones of `ids` in order of appearance, and for each id which it is."""
        ids = ids.reshape(-1).contiguous()
        return self._known.get(ids, 0, lambda: self._fold(ids.cpu().numpy()))

    def grouped(self, ids: Jagged, fields: int) -> Jagged:
        """The bags as `by_field` gives them."""
        return self._grouped.get(ids, fields, lambda: by_field(ids, fields))

    def chosen(self, ids: Jagged, fields: int, only: tuple[int, ...]) -> Jagged:
        """The bags of the fields `only`, of those that `grouped` gives."""
        bags = self.grouped(ids, fields)
        return self._chosen.get(bags, (fields, only), lambda: bags.bags_at(only))

    def flat(self, ids: Tensor | Jagged, fields: int | None, only: Only = None) -> Tensor:
        """The ids (int64 [n]) that a look-up uses; of `fields`, each with its own ones.

        With `only`, those of these fields.
        """
        if isinstance(ids, Tensor) and ids.dtype is not torch.int64:
            ids = self._widened.get(ids, 0, ids.long)
        if fields is None:
            return (ids.ids if isinstance(ids, Jagged) else ids).reshape(-1)
        bags = self.grouped(ids, fields) if isinstance(ids, Jagged) else ids
        return self._salted.get(bags, (fields, only), lambda: field_ids(bags, fields, only))

    def arrays(self, ids: Ids) -> Folded:
        """The same for an array, which is not remembered."""
        return self._fold(ids)


@final
class _Remembered(Generic[Made]):
    """What was made of the last few ids."""

    def __init__(self) -> None:
        # The ids are kept, so that their memory is not given to others.
        self._known: deque[tuple[_Key, Tensor | Jagged, Made]] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, ids: Tensor | Jagged, what: _What, make: Callable[[], Made]) -> Made:
        """What is known of these ids, or what `make` makes of them."""
        parts = _parts(ids)
        if any(part.is_inference() for part in parts):
            return make()  # such a tensor does not tell whether it has changed
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
