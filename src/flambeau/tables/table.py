"""An embedding table in one process: rows for ids, updated by gradients."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec, optimizer_of
from flambeau.kernels.cores import spread
from flambeau.tables import initializers
from flambeau.tables.admission import build_admission
from flambeau.tables.eviction import build_eviction
from flambeau.tables.index.bits import RowBits
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Rows
from flambeau.tables.inputs import for_kernels
from flambeau.tables.optimizers import build_row_optimizer
from flambeau.tables.precision import COMPUTED, narrow, widen
from flambeau.tables.saved.snapshot import TableSnapshot
from flambeau.tables.saved.touched import Touched
from flambeau.tables.slabs import place_of
from flambeau.tables.storage import Storage, gather, scatter

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class TableCounters:
    """Size of a table in rows and bytes, and how many ids were admitted, rejected and evicted."""

    rows: int
    bytes: int
    admitted: int
    rejected: int
    evicted: int


@final
class Table:
    """Growing table in this process, not safe for use by several threads at once.

    Values are returned and gradients expected in `dtype`, the compute type. `shards` is the number
    of tables that together hold the whole, each a part of its ids.
    """

    def __init__(
        self,
        spec: TableSpec,
        seed: int,
        optimizer: OptimizerSpec | None = None,
        directory: Path | None = None,
        *,
        shards: int = 1,
    ) -> None:
        self.spec = spec
        self.dtype = np.dtype(COMPUTED[spec.dtype])
        self.optimizer = build_row_optimizer(optimizer_of(spec, optimizer))
        self.steps = 0
        self._shards = shards
        self._admitted = self._rejected = self._evicted = 0
        self._key = initializers.table_key(seed, spec.name)
        self._default = narrow(initializers.default_row(spec)[None], spec.dtype)[0]
        self._storage = Storage(spec, self.optimizer.state_width(spec.dim), directory)
        self._admission = build_admission(spec.admission, self._key)
        self._eviction = build_eviction(spec.eviction, self._storage, shards)
        self._touched: Touched | None = None
        self._snapshot: TableSnapshot | None = None

    def __len__(self) -> int:
        return len(self._storage.index)

    @property
    def nbytes(self) -> int:
        """Memory of index, values and state in bytes."""
        return self._storage.nbytes

    @property
    def counters(self) -> TableCounters:
        """Current sizes, and counts since the table was created."""
        return TableCounters(len(self), self.nbytes, self._admitted, self._rejected, self._evicted)

    @property
    def updates_by_row(self) -> bool:
        """Return whether an update may be split: no row's update depends on other rows."""
        return self._admission is None and self._eviction is None

    @property
    def track_touched(self) -> bool:
        """Return whether the table records changes, for snapshots of only the changed rows."""
        return self._touched is not None

    @track_touched.setter
    def track_touched(self, wanted: bool) -> None:
        if wanted != self.track_touched:
            assert self._snapshot is None, "what is tracked cannot change during a snapshot"
            self._touched = Touched(self._storage.index) if wanted else None

    def pull(self, ids: Ids, *, training: bool, out: Array | None = None) -> Array:
        """Return the rows of `ids` [n, dim], in `out` if it has the stored type. Changes nothing.

        An id without a row reads as the default row. When `training`, an id that will get a row at
        the next push reads as the first values of that row.
        """
        ids = for_kernels(ids, np.int64)
        storage, rows = self._storage, np.empty(ids.size, np.int64)
        if out is None or out.dtype != storage.values.dtype:
            out = np.empty((ids.size, self.spec.dim), storage.values.dtype)

        def look_up(part: slice, out: Array = out) -> None:
            storage.index.find(ids[part], rows[part])
            gather(storage.values, rows[part], self._default, out[part])

        spread(look_up, ids.size)
        if training and self.spec.trainable and (rows < 0).any():
            self._fill_in(ids, rows, out)
        return widen(out, self.spec.dtype)

    def push(
        self,
        ids: Ids,
        grads: Array,
        lr: float | None = None,
        *,
        step: int | None = None,
        now: float | None = None,
    ) -> None:
        """Apply the gradients [n, dim] of distinct `ids`.

        An id without a row gets one first, if it is admitted; else its gradient is dropped. `step`
        is the number of this update, from 1 (default: one more than the last); `now` is the time in
        seconds, for rows that expire.
        """
        assert grads.shape == (ids.size, self.spec.dim), "a gradient for each id"
        self.steps = self.steps + 1 if step is None else step
        if not self.spec.trainable:
            return
        ids = for_kernels(ids, np.int64)
        grads = for_kernels(grads, self.dtype)
        if self.updates_by_row:
            rows = self._rows_for_all(ids)
        else:
            rows = self._rows_for_admitted(ids, time.time() if now is None else now)
        if self._admission is not None and rows.size and rows.min() < 0:
            admitted = rows >= 0
            rows, grads = rows[admitted], grads[admitted]
        self._update(rows, grads, self.optimizer.lr if lr is None else lr)
        if self._touched is not None:
            self._touched.changed(rows)

    def load(
        self, ids: Ids, values: Array, state: Array | None = None, seen: Array | None = None
    ) -> None:
        """Set the rows of `ids` to `values` [n, dim], whether or not they would be admitted.

        `values` are in the stored or in the compute type. Without `state` [n, width] the optimizer
        starts from its initial state; without `seen` [n] rows count as trained now, once.
        """
        storage = self._storage
        ids = for_kernels(ids, np.int64)
        assert values.shape == (ids.size, self.spec.dim), "a vector for each id"
        if values.dtype != storage.values.dtype:
            values = narrow(np.asarray(values, self.dtype), self.spec.dtype)
        rows = self._rows_of_new_content(ids)
        scatter(storage.values, rows, for_kernels(values, values.dtype))
        scatter(storage.state, rows, self._state_or_first(rows, state))
        if self._eviction is not None:
            self._eviction.load(rows, seen, self.steps, time.time())
        if self._touched is not None:
            self._touched.changed(rows)

    def forget(self, ids: Ids) -> None:
        """Remove the rows of those `ids` that have one."""
        ids = for_kernels(ids, np.int64)
        rows = self._storage.index.find(ids)
        there = rows >= 0
        self._remove(ids[there], rows[there])

    def begin_snapshot(self, touched_only: bool = False) -> TableSnapshot:
        """Return a snapshot of the current rows, to read in pieces while the table changes.

        `touched_only` limits it to the rows that changed and the ids that were removed since the
        last completed full snapshot; it needs `track_touched`. Only one snapshot may be open at a
        time.
        """
        assert self._snapshot is None, "the last snapshot is neither finished nor abandoned"
        index, touched = self._storage.index, self._touched
        if touched_only:
            assert touched is not None, "track_touched was not set"
            given, rows, removed = touched.bits.inverted(), touched.bits.count(), touched.removed()
        else:
            given, rows, removed = RowBits(index.rows_ever), len(index), np.empty(0, np.int64)
            if touched is not None:
                touched.start_anew()
        snapshot = TableSnapshot(self._storage, given, rows, removed, self._end_snapshot)
        self._snapshot = snapshot
        return snapshot

    def state_dump(self) -> dict[str, Any]:
        """Return everything but the rows, as numbers and arrays that `state_load` takes."""
        dump: dict[str, Any] = {
            "steps": self.steps,
            "admitted": self._admitted,
            "rejected": self._rejected,
            "evicted": self._evicted,
        }
        if self._admission is not None:
            dump |= self._admission.dump()
        if self._eviction is not None:
            dump |= self._eviction.dump()
        return dump

    def state_load(self, dumps: Sequence[dict[str, Any]], shard: int) -> None:
        """Restore the dumps of all shards of a table, which may be any number of shards.

        Counts are for all shards together: the first shard takes them, the others start at 0.
        """
        self.steps = max(int(dump["steps"]) for dump in dumps)
        counted = dumps if shard == 0 else []
        self._admitted = sum(int(dump["admitted"]) for dump in counted)
        self._rejected = sum(int(dump["rejected"]) for dump in counted)
        self._evicted = sum(int(dump["evicted"]) for dump in counted)
        if self._admission is not None:
            self._admission.load(dumps)
        if self._eviction is not None:
            self._eviction.load_dump(dumps[shard] if len(dumps) == self._shards else None)

    def _fill_in(self, ids: Ids, rows: Rows, out: Array) -> None:
        """Write first values to `out` for ids that would get a row at the next push."""
        missing = np.flatnonzero(rows < 0)
        if self._admission is not None:
            missing = missing[self._admission.willing(ids[missing])]
        out[missing] = initializers.first_values(self.spec, self._key, ids[missing])

    def _rows_for_all(self, ids: Ids) -> Rows:
        rows, is_new = self._storage.index.find_or_insert(ids)
        if self._snapshot is not None:
            self._snapshot.leave_out(rows[is_new])
            self._snapshot.save(ids[~is_new], rows[~is_new])
        if is_new.any():
            self._begin_rows(ids[is_new], rows[is_new])
        return rows

    def _rows_for_admitted(self, ids: Ids, now: float) -> Rows:
        """Return the rows of ids, -1 for rejected ones, evicting other rows to make room."""
        rows = self._storage.index.find(ids)
        missing = np.flatnonzero(rows < 0)
        if self._snapshot is not None:
            known = rows >= 0
            self._snapshot.save(ids[known], rows[known])
        if self._admission is not None:
            admitted = self._admission.admit(ids[missing], self.steps)
            self._rejected += int(missing.size - admitted.sum())
            missing = missing[admitted]
        if self._eviction is not None:
            self._eviction.trained(rows[rows >= 0], self.steps, now)
            self._evict(incoming=missing.size, now=now)
        rows[missing] = self._rows_for_new(ids[missing])
        if self._eviction is not None:
            self._eviction.settle(rows[missing], self.steps, now)
        return rows

    def _rows_for_new(self, ids: Ids) -> Rows:
        rows, _ = self._storage.index.find_or_insert(ids)
        if self._snapshot is not None:
            self._snapshot.leave_out(rows)
        self._begin_rows(ids, rows)
        return rows

    def _rows_of_new_content(self, ids: Ids) -> Rows:
        rows, is_new = self._storage.index.find_or_insert(ids)
        self._storage.reserve()
        if self._snapshot is not None:
            self._snapshot.leave_out(rows[is_new])
            self._snapshot.save(ids, rows)
        return rows

    def _begin_rows(self, ids: Ids, rows: Rows) -> None:
        storage = self._storage
        storage.reserve()
        scatter(storage.values, rows, initializers.first_values(self.spec, self._key, ids))
        scatter(storage.state, rows, self._state_or_first(rows, None))
        self._admitted += rows.size

    def _state_or_first(self, rows: Rows, state: Array | None) -> Array:
        shape = (rows.size, self._storage.state.width)
        if state is None:
            return np.full(shape, self.optimizer.first_state, self.dtype)
        assert state.shape == shape, "a state for each id, of the table's optimizer"
        return for_kernels(state, self.dtype)

    def _evict(self, incoming: int, now: float) -> None:
        assert self._eviction is not None
        ids, rows = self._eviction.leaving(incoming, self.steps, now)
        self._remove(ids, rows)
        self._evicted += ids.size

    def _remove(self, ids: Ids, rows: Rows) -> None:
        if ids.size == 0:
            return
        if self._snapshot is not None:
            self._snapshot.save(ids, rows)
        if self._touched is not None:
            self._touched.left(ids, rows)
        self._storage.index.remove(ids)

    def _update(self, rows: Rows, grads: Array, lr: float) -> None:
        storage = self._storage
        if self.spec.dtype in ("fp32", "fp64"):
            places = storage.values.place, storage.state.place

            def update(part: slice) -> None:
                self.optimizer.update(rows[part], grads[part], *places, lr, self.steps)

            spread(update, rows.size)
        else:
            self._update_halves(rows, grads, lr)

    def _update_halves(self, rows: Rows, grads: Array, lr: float) -> None:
        """Update float32 copies of half-precision rows, then round them back."""
        storage = self._storage
        values = widen(gather(storage.values, rows), self.spec.dtype)
        state = gather(storage.state, rows)
        own = np.arange(rows.size)
        places = place_of(values), place_of(state)
        self.optimizer.update(own, grads, *places, lr, self.steps)
        scatter(storage.values, rows, narrow(values, self.spec.dtype))
        scatter(storage.state, rows, state)

    def _end_snapshot(self, completed: bool) -> None:
        self._snapshot = None
        if self._touched is not None:
            self._touched.end_snapshot(completed)
