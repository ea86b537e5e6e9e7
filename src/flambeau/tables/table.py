"""One embedding table: rows for ids, changed by gradients."""

from pathlib import Path
from typing import Any, final

import numpy as np

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec
from flambeau.tables import initializers, row_kernels
from flambeau.tables.hashing import Ids
from flambeau.tables.index import Index, Rows
from flambeau.tables.optimizers import build_row_optimizer
from flambeau.tables.precision import COMPUTED, STORED, narrow, widen
from flambeau.tables.slabs import Slabs

Array = np.ndarray[Any, Any]


@final
class Table:
    """A growing table in this process. Not for use by several threads at once.

    Values are given and gradients taken in `dtype`, the type they are computed with.
    """

    def __init__(
        self,
        spec: TableSpec,
        seed: int,
        optimizer: OptimizerSpec | None = None,
        directory: Path | None = None,
    ) -> None:
        self.spec = spec
        self.dtype = np.dtype(COMPUTED[spec.dtype])
        self.optimizer = build_row_optimizer(spec.optimizer or optimizer or OptimizerSpec())
        self.steps = 0
        self._key = initializers.table_key(seed, spec.name)
        self._index = Index()
        place = directory if spec.storage == "mmap" else None
        self._values = Slabs(spec.dim, STORED[spec.dtype], place)
        self._state = Slabs(self.optimizer.state_width(spec.dim), self.dtype, place)
        self._default = narrow(self._first_values(np.empty(0, np.int64), rows=1), spec.dtype)[0]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Memory set aside for index, values and state."""
        return self._index.nbytes + self._values.nbytes + self._state.nbytes

    def pull(self, ids: Ids, *, create: bool) -> Array:
        """The rows of `ids` [n, dim]. With `create`, new ids get a row; else the default row."""
        rows = self._create(ids) if create else self._index.find(ids)
        return widen(self._gather(self._values, rows, self._default), self.spec.dtype)

    def push(self, ids: Ids, grads: Array, lr: float | None = None) -> None:
        """Apply the gradients [n, dim] of distinct `ids`; an id without a row gets one first."""
        self.steps += 1
        if not self.spec.trainable:
            return
        rows = self._create(ids)
        grads = np.ascontiguousarray(grads, self.dtype)
        rate = self.optimizer.lr if lr is None else lr
        if self.spec.dtype in ("fp32", "fp64"):
            values, state = self._values, self._state
            self.optimizer.update(rows, grads, values, state, rate, self.steps)
        else:
            self._push_half(rows, grads, rate)

    def _push_half(self, rows: Rows, grads: Array, lr: float) -> None:
        """Update copies in float32, then round them back."""
        values, state = _copy_of(self._values, rows, self.dtype), _copy_of(self._state, rows)
        stored = self._gather(self._values, rows, self._default)
        own = np.arange(rows.size)
        row_kernels.scatter(own, widen(stored, self.spec.dtype), values.place)
        none = np.zeros(self._state.width, self.dtype)
        kept = self._gather(self._state, rows, none)
        row_kernels.scatter(own, kept, state.place)
        self.optimizer.update(own, grads, values, state, lr, self.steps)
        changed = np.empty((rows.size, self.spec.dim), self.dtype)
        row_kernels.gather(own, changed, changed[0], values.place)
        self._scatter(self._values, rows, narrow(changed, self.spec.dtype))
        row_kernels.gather(own, kept, none, state.place)
        self._scatter(self._state, rows, kept)

    def _create(self, ids: Ids) -> Rows:
        rows, is_new = self._index.find_or_insert(ids)
        if is_new.any():
            self._values.reserve(self._index.rows_ever)
            self._state.reserve(self._index.rows_ever)
            new_rows = rows[is_new]
            first = narrow(self._first_values(ids[is_new]), self.spec.dtype)
            self._scatter(self._values, new_rows, first)
            shape = (new_rows.size, self._state.width)
            beginning = np.full(shape, self.optimizer.first_state, self.dtype)
            self._scatter(self._state, new_rows, beginning)
        return rows

    def _first_values(self, ids: Ids, rows: int | None = None) -> Array:
        """Values for new ids; with `rows`, of the default row, which is the initializer's mean."""
        setting = self.spec.initializer
        mean = setting.value if setting.kind == "constant" else 0.0
        out = np.full((ids.size if rows is None else rows, self.spec.dim), mean, self.dtype)
        if setting.kind == "uniform":
            initializers.uniform(ids, self._key, -setting.scale, setting.scale, out)
        elif setting.kind == "normal":
            initializers.normal(ids, self._key, 0.0, setting.scale, out)
        return out

    @staticmethod
    def _gather(slabs: Slabs, rows: Rows, default: Array) -> Array:
        out = np.empty((rows.size, slabs.width), slabs.dtype)
        row_kernels.gather(rows, out, default, slabs.place)
        return out

    @staticmethod
    def _scatter(slabs: Slabs, rows: Rows, values: Array) -> None:
        row_kernels.scatter(rows, values, slabs.place)


def _copy_of(slabs: Slabs, rows: Rows, dtype: Any = None) -> Slabs:
    scratch = Slabs(slabs.width, dtype or slabs.dtype)
    scratch.reserve(max(1, rows.size))
    return scratch
