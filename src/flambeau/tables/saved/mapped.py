"""Tables of a checkpoint, read in place: memory-mapped, never loaded as a whole."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from flambeau.checkpoint import Manifest
from flambeau.checkpoint.manifest import TableEntry
from flambeau.config.tables import TableSpec
from flambeau.errors import CheckpointError, ConfigError
from flambeau.tables import initializers
from flambeau.tables.index.hashing import shards_of
from flambeau.tables.index.ids import Ids
from flambeau.tables.index.index import Rows
from flambeau.tables.saved.checked_blocks import WHOLE
from flambeau.tables.saved.table_files import ABSENT, TableFile

Array = np.ndarray[Any, Any]
Layers = Sequence[Sequence[TableFile]]


@final
class MappedTable:
    """Read-only table. Any number of threads may use it.

    `layers` are the files of all shards of a checkpoint, then those of the checkpoint it adds to,
    and so on: for each id the newest layer that mentions it decides.
    """

    def __init__(self, spec: TableSpec, layers: Layers) -> None:
        assert all(layers), "a layer has at least one file"
        for file in (file for layer in layers for file in layer):
            if (file.dim, file.dtype) != (spec.dim, spec.dtype):
                raise CheckpointError(
                    f"{file.path} has rows of {file.dim} {file.dtype} numbers, but table "
                    f"'{spec.name}' of {spec.dim} {spec.dtype}"
                )
        self.spec, self.layers = spec, layers
        self._default = initializers.default_row(spec)
        self._rows: int | None = None

    def __len__(self) -> int:
        """Return the number of rows; the first call scans all layers but the oldest."""
        if self._rows is None:
            every = range(len(self.layers))
            self._rows = sum(self.rows_of_layer(number) - self._hides(number) for number in every)
        return self._rows

    @property
    def nbytes(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.nbytes for layer in self.layers for file in layer)

    @property
    def has_checksums(self) -> bool:
        """Return whether damage to any of the files is detected."""
        return all(file.has_checksums for layer in self.layers for file in layer)

    def rows_of_layer(self, number: int) -> int:
        """Return the number of rows in a layer (0: the newest), even if newer ones replace them."""
        return sum(file.rows for file in self.layers[number])

    def pull(self, ids: Ids) -> Array:
        """Return the rows of `ids` [n, dim], the default row for ids that have none."""
        ids = np.ascontiguousarray(ids, np.int64)
        out = np.tile(self._default, (ids.size, 1))
        for file, which, positions in _decisions(self.layers, ids):
            there = positions >= 0
            out[which[there]] = file.take(positions[there])
        return out

    def has(self, ids: Ids) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether each id has a row."""
        return _has(self.layers, np.ascontiguousarray(ids, np.int64))

    def chunks(self, max_rows: int) -> Iterator[tuple[Ids, Array]]:
        """Yield ids [n] and values [n, dim] of all rows, each once, up to `max_rows` at a time."""
        for number, layer in enumerate(self.layers):
            newer = self.layers[:number]
            for file in layer:
                for piece in file.pieces(max_rows):
                    positions = piece.start + _undecided(newer, file.ids(piece))
                    if positions.size:
                        yield file.ids(positions), file.take(positions)

    def _hides(self, number: int) -> int:
        """Return how many rows of older layers a layer replaces or removes."""
        older = self.layers[number + 1 :]
        if not older:
            return 0
        batches = (ids for file in self.layers[number] for ids in file.mentions(1 << 16))
        return sum(int(_has(older, ids).sum()) for ids in batches)


def open_tables(checkpoint: Path, whole: int = WHOLE) -> dict[str, MappedTable]:
    """Open the tables of a committed checkpoint, by name.

    Files up to `whole` bytes are checked now, larger ones where they are used (see `TableFile`).
    """
    entries = Manifest.read(checkpoint).tables
    tables = {name: _open(checkpoint, name, entry, whole) for name, entry in entries.items()}
    unknown = [name for name, table in tables.items() if not table.has_checksums]
    if unknown and whole:
        warnings.warn(
            f"{checkpoint} was written before table files had checksums, so damage to table "
            f"{', '.join(unknown)} is not noticed; the run's next checkpoint will have checksums",
            stacklevel=2,
        )
    return tables


def _open(checkpoint: Path, name: str, entry: TableEntry, whole: int) -> MappedTable:
    try:
        spec = TableSpec.parse(entry.spec)
    except ConfigError as error:
        raise CheckpointError(f"{checkpoint}: table '{name}' cannot be read: {error}") from error
    layers = [[TableFile(checkpoint / path, whole) for path in layer] for layer in entry.layers]
    return MappedTable(spec, layers)


def _decisions(layers: Layers, ids: Ids) -> Iterator[tuple[TableFile, Rows, Rows]]:
    """Yield which of `ids` each file decides on, and their positions in it (`GONE`: no row)."""
    is_open = np.ones(ids.size, np.bool_)
    for layer in layers:
        rest = np.flatnonzero(is_open)
        shards = shards_of(ids[rest], len(layer))
        for shard, file in enumerate(layer):
            which = rest[shards == shard]
            positions = file.locate(ids[which])
            decided = positions != ABSENT
            is_open[which[decided]] = False
            yield file, which[decided], positions[decided]


def _has(layers: Layers, ids: Ids) -> np.ndarray[Any, np.dtype[np.bool_]]:
    out = np.zeros(ids.size, np.bool_)
    for _, which, positions in _decisions(layers, ids):
        out[which] = positions >= 0
    return out


def _undecided(layers: Layers, ids: Ids) -> Rows:
    is_open = np.ones(ids.size, np.bool_)
    for _, which, _ in _decisions(layers, ids):
        is_open[which] = False
    return np.flatnonzero(is_open)
