"""Admission policies: which ids get a row."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from flambeau.config import tables as settings
from flambeau.errors import CheckpointError
from flambeau.kernels.compiled import kernel
from flambeau.kernels.mixing import mix
from flambeau.tables.index.ids import Ids
from flambeau.tables.sketch import CountMinSketch

Mask = np.ndarray[Any, np.dtype[np.bool_]]

_TO_UNIT = 1.0 / (1 << 53)
_ELEVEN = np.uint64(11)


class Admission(ABC):
    """Policy that decides whether an id without a row gets one."""

    @abstractmethod
    def willing(self, ids: Ids) -> Mask:
        """Return which `ids` are certain to get a row at the next push. Changes nothing."""

    @abstractmethod
    def admit(self, ids: Ids, step: int) -> Mask:
        """Return which of these distinct ids, all pushed at `step`, get a row now."""

    def dump(self) -> dict[str, Any]:
        """Return the policy's state as arrays, for a checkpoint."""
        return {}

    def load(self, dumps: Sequence[Mapping[str, Any]]) -> None:
        """Replace the policy's state with what all shards of a table had dumped."""
        return


@final
class ByCount(Admission):
    """Admission of an id at the `count`-th push that contains it."""

    def __init__(self, setting: settings.MinCount) -> None:
        self._count = setting.count
        self._sketch = CountMinSketch(setting.cells)

    def willing(self, ids: Ids) -> Mask:
        return self._sketch.estimate(ids) >= self._count - 1

    def admit(self, ids: Ids, step: int) -> Mask:
        return self._sketch.add(ids) >= self._count

    def dump(self) -> dict[str, Any]:
        return {"sketch": self._sketch.cells.copy()}

    def load(self, dumps: Sequence[Mapping[str, Any]]) -> None:
        self._sketch.cells[:] = 0
        for dump in dumps:
            cells = np.asarray(dump.get("sketch", self._sketch.cells))
            if cells.shape != self._sketch.cells.shape:
                raise CheckpointError(
                    f"the checkpoint counts ids in {cells.size} cells, admission=MinCount has "
                    f"{self._sketch.cells.size}; keep `cells` unchanged"
                )
            self._sketch.merge(cells)


@final
class ByChance(Admission):
    """Admission with probability `p`, as a fixed function of table key, step and id."""

    def __init__(self, setting: settings.Probability, key: np.uint64) -> None:
        self._p, self._key = setting.p, key

    def willing(self, ids: Ids) -> Mask:
        # The step is not known yet; with p = 1 it does not matter.
        return np.full(ids.size, self._p == 1.0)

    def admit(self, ids: Ids, step: int) -> Mask:
        out = np.empty(ids.size, np.bool_)
        _throw_coins(ids, self._key, np.uint64(step), self._p, out)
        return out


@kernel
def _throw_coins(ids: Any, key: Any, step: Any, p: float, out: Any) -> None:
    coin = mix(key ^ mix(step))
    for i in range(ids.size):
        out[i] = np.float64(mix(np.uint64(ids[i]) ^ coin) >> _ELEVEN) * _TO_UNIT < p


def build_admission(
    setting: settings.MinCount | settings.Probability | None, key: np.uint64
) -> Admission | None:
    """Build the policy of a setting; None admits every id. `key` is the key of the table."""
    if setting is None:
        return None
    if isinstance(setting, settings.MinCount):
        return ByCount(setting)
    return ByChance(setting, key)
