"""The distinct ids of tensors, found once for all who ask."""

from collections import deque
from typing import Any, final

import numpy as np
from torch import Tensor

from flambeau.data.jagged import Jagged
from flambeau.embeddings.fields import field_ids
from flambeau.tables.ids import Ids
from flambeau.tables.row_kernels import Fold

#: Tables that look the same ids up, and the batch that is fetched early, come again soon.
REMEMBERED = 4

Folded = tuple[Ids, np.ndarray[Any, np.dtype[np.int32]]]


@final
class Folds:
    """Folds tensors of ids, and remembers the last few; a tensor must not change meanwhile."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._known: deque[tuple[tuple[int, ...], Tensor, Folded]] = deque(maxlen=REMEMBERED)
        self._salted: deque[tuple[tuple[int, ...], Tensor, Tensor]] = deque(maxlen=REMEMBERED)

    def __call__(self, ids: Tensor) -> Folded:
        """The distinct ones of `ids` in order of appearance, and for each id which it is."""
        ids = ids.reshape(-1).contiguous()
        if ids.is_inference():
            # Such a tensor does not tell whether it has changed.
            return self._fold(ids.cpu().numpy())
        key = (ids.data_ptr(), ids.numel(), ids._version)
        for known, _, folded in self._known:
            if known == key:
                return folded
        folded = self._fold(ids.cpu().numpy())
        # The tensor is kept, so that its memory is not given to another one.
        self._known.append((key, ids, folded))
        return folded

    def flat(self, ids: Tensor | Jagged, fields: int | None) -> Tensor:
        """The ids [n] that a look-up uses; of `fields`, each with its own ones."""
        given = ids.ids if isinstance(ids, Jagged) else ids
        if fields is None:
            return given.reshape(-1)
        if given.is_inference():
            return field_ids(ids, fields)
        key = (given.data_ptr(), given.numel(), given._version, fields)
        for known, _, salted in self._salted:
            if known == key:
                return salted
        salted = field_ids(ids, fields)
        self._salted.append((key, given, salted))
        return salted

    def arrays(self, ids: Ids) -> Folded:
        """The same for an array, which is not remembered."""
        return self._fold(ids)
