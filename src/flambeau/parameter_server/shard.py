"""The state of one server: its part of every table and of the dense weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from torch.optim import Optimizer

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.settings import differences
from flambeau.config.tables import TableSpec
from flambeau.errors import ModelError
from flambeau.messaging.sharing import Room
from flambeau.parameter_server.dense_layout import DenseLayout
from flambeau.parameter_server.dense_range import DenseRange
from flambeau.parameter_server.gradient import Gradient
from flambeau.parameter_server.staging import Staging
from flambeau.parameter_server.watermarks import Watermarks
from flambeau.tables.index.hashing import shards_of
from flambeau.tables.index.id_positions import IdPositions
from flambeau.tables.index.ids import Ids
from flambeau.tables.saved.importing import import_vectors
from flambeau.tables.table import Table

#: With fewer rows, splitting an update costs more than it saves.
SPLIT_ROWS = 512

Array = np.ndarray[Any, Any]
_NO_IDS = np.empty(0, np.int64)

MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


@dataclass(frozen=True)
class ShardSettings:
    """Settings of a shard: its number `index` of `count`, and how it updates."""

    index: int
    count: int
    seed: int
    table_optimizer: OptimizerSpec | None
    make_optimizer: MakeOptimizer
    clip_value: float | None = None
    directory: Path | None = None


@final
class ServerShard:
    """Tables, dense range, and a record of applied gradients. Used by one thread."""

    def __init__(self, settings: ShardSettings) -> None:
        self.settings = settings
        self.tables: list[Table] = []
        self.dense: DenseRange | None = None
        self.layout: DenseLayout | None = None
        self.staging = Staging(0, settings.clip_value)
        self.watermarks = Watermarks()
        self.version = 0
        self.begun = False
        #: Tables whose first rows came from a checkpoint.
        self.filled: set[str] = set()
        self._declared = False
        # Remembered arrays keep the buffers they were received in from being reused.
        self._membership = IdPositions(remembered=1)

    @property
    def specs(self) -> list[TableSpec]:
        """Specs of the declared tables, by number."""
        return [table.spec for table in self.tables]

    @property
    def declared(self) -> bool:
        """Return whether a worker has declared its tables and weights."""
        return self._declared

    def declare(self, specs: Sequence[TableSpec], layout: DenseLayout | None) -> None:
        """Create tables and dense weights in the first call; later, check that they are equal."""
        if self._declared:
            self._compare(specs, layout)
            return
        settings = self.settings
        self.tables = [
            Table(
                spec,
                settings.seed,
                settings.table_optimizer,
                settings.directory,
                shards=settings.count,
            )
            for spec in specs
        ]
        if layout is not None:
            start, stop = layout.ranges(settings.count)[settings.index]
            self.dense = DenseRange(layout, start, stop, settings.make_optimizer)
        self.layout, self._declared = layout, True

    def import_first_rows(self) -> None:
        """Import the tables' `init` files, keeping only ids of this shard."""
        for table in self.tables:
            if table.spec.init is not None and table.spec.name not in self.filled:
                import_vectors(table, Path(table.spec.init), self.owns)

    def owns(self, ids: Ids) -> Any:
        """Return which ids belong to this shard."""
        return shards_of(ids, self.settings.count) == self.settings.index

    def pull(
        self, wanted: Sequence[tuple[int, Ids]], *, training: bool, room: Room | None = None
    ) -> list[Array]:
        """Return the rows of ids, by table number, in `room` if it is given. Changes nothing."""
        found = []
        for place, (number, ids) in enumerate(wanted):
            table = self.tables[number]
            shape = (ids.size, table.spec.dim)
            out = None if room is None else room.array(place, table.dtype, shape)
            found.append(table.pull(ids, training=training, out=out))
        return found

    def sizes(self, wanted: Sequence[tuple[int, Ids]]) -> list[int]:
        """Return the sizes in bytes of the rows that `pull` returns."""
        tables = self.tables
        return [
            ids.size * tables[number].spec.dim * tables[number].dtype.itemsize
            for number, ids in wanted
        ]

    def apply(self, gradient: Gradient) -> None:
        """Apply a gradient as one update of tables and dense weights."""
        for number, (ids, grads) in gradient.tables.items():
            table = self.tables[number]
            table.push(ids, grads, table.optimizer.lr * gradient.factor)
        if gradient.dense is not None:
            assert self.dense is not None
            self.dense.apply(gradient.dense, set(gradient.absent), list(gradient.rates))
        self.version += 1

    def apply_first(
        self, gradient: Gradient, wanted: Sequence[tuple[int, Ids]]
    ) -> Callable[[], None]:
        """Update the dense weights and the rows in `wanted`; return a function that does the rest.

        The rest may wait until the sender has its answer, but must precede every other request.
        """
        first, asked = replace(gradient, tables=dict(gradient.tables)), dict(wanted)
        taken: dict[int, Array] = {}
        for number, (ids, grads) in gradient.tables.items():
            # Admission and eviction depend on all rows of an update.
            if ids.size >= SPLIT_ROWS and self.tables[number].updates_by_row:
                places = self._membership.places(ids, asked.get(number, _NO_IDS))
                first.tables[number] = ids[places], grads[places]
                taken[number] = places
        self.apply(first)
        return partial(self._apply_rest, gradient, taken)

    def _apply_rest(self, gradient: Gradient, taken: dict[int, Array]) -> None:
        for number, places in taken.items():
            ids, grads = gradient.tables[number]
            if places.size:
                left = np.ones(ids.size, np.bool_)
                left[places] = False
                ids, grads = ids[left], grads[left]
            table = self.tables[number]
            table.push(ids, grads, table.optimizer.lr * gradient.factor, step=table.steps)

    def _compare(self, specs: Sequence[TableSpec], layout: DenseLayout | None) -> None:
        ours = {spec.name: spec for spec in self.specs}
        for spec in specs:
            if spec.name not in ours:
                raise ModelError(
                    f"table '{spec.name}' is new: all workers must have the same tables from the "
                    f"start ({', '.join(ours) or 'there are none'})"
                )
            if spec != ours[spec.name]:
                raise ModelError(
                    f"table '{spec.name}' has two specs: {differences(spec, ours[spec.name])}; "
                    "give one of them another name, or make them equal"
                )
        missing = ours.keys() - {spec.name for spec in specs}
        if missing:
            raise ModelError(
                f"a worker lacks table '{min(missing)}': all workers must have the same tables"
            )
        if (layout is None) != (self.layout is None):
            raise ModelError("some workers have dense weights on the servers and others have not")
        if layout is not None and self.layout is not None:
            self.layout.check_same(layout)
