"""Writing of an export: a folder with the graph, separate tables, and the binding of columns."""

import os
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import nn

from flambeau.checkpoint.durable import TEMPORARY
from flambeau.checkpoint.manifest import FileEntry
from flambeau.checkpoint.os_errors import named
from flambeau.checkpoint.soundness import file_entry
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.jagged import Jagged
from flambeau.embeddings.backend import LookupBackend
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ConfigError
from flambeau.inference.arguments import Arguments, Leaf, take_apart
from flambeau.inference.export_description import (
    FEATURES,
    Bound,
    ExportDescription,
    GraphFile,
    Since,
    TableEntry,
)
from flambeau.inference.export_graph import EXAMPLE_ROWS, GraphSource, make_graph
from flambeau.inference.exported_tables import (
    ExportedTable,
    Stored,
    as_stored,
    changed_ids,
    sorted_ids,
    write_table,
)
from flambeau.inference.graph_files import require_format
from flambeau.inference.inside_tables import InsideTable
from flambeau.inference.looking_up import LookUps
from flambeau.inference.lookup_calls import Lookup, find_lookups, record_calls
from flambeau.tables.index.ids import Ids
from flambeau.tables.initializers import default_row
from flambeau.tables.saved.mapped import MappedTable
from flambeau.version import __version__

TableValues = Literal["fp32", "bf16", "int8"]
INSIDE_MB = 64.0


@dataclass(frozen=True)
class ExportOptions:
    """Format of the graph, values of tables, and the limit in MB of tables inside the graph."""

    format: str = "pt2"
    tables: str = "fp32"
    inside_mb: float = INSIDE_MB

    def __post_init__(self) -> None:
        require_format(self.format)
        if self.tables not in ("fp32", "bf16", "int8"):
            raise ConfigError(f"tables={self.tables!r} is not known; use fp32, bf16 or int8")


@dataclass(frozen=True)
class Base:
    """The base of a delta: its name as given by the user, its tables, and its description.

    Only exports have a description; checkpoints have none.
    """

    name: str
    since: Since
    tables: Mapping[str, ExportedTable]
    description: ExportDescription | None


@final
@dataclass(frozen=True)
class TrainedModel:
    """A trained model, an example of its rows, and the known properties of its data."""

    model: nn.Module
    binder: Binder
    example: Batch
    tables: Mapping[str, MappedTable]
    backend: LookupBackend | None
    bound: Bound
    run: str
    checkpoint: str
    #: Folder of the pipeline that makes its features, or None.
    features: Path | None = None


def write_export(
    trained: TrainedModel, folder: Path, options: ExportOptions, base: Base | None = None
) -> ExportDescription:
    """Write the export, or the changes since `base`; the folder appears when it is complete."""
    if folder.exists():
        raise ConfigError(f"out={folder} exists already; choose another folder, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}{TEMPORARY}")
    partial.mkdir()
    try:
        with named(folder):
            description = _Writing(trained, options, base).into(partial)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return description


@final
class _Writing:
    def __init__(self, trained: TrainedModel, options: ExportOptions, base: Base | None) -> None:
        self._trained, self._options, self._base = trained, options, base
        names = [each.name for each in trained.bound.forward if not each.batch]
        self._arguments, self._values = _parts(trained, names)

    def into(self, folder: Path) -> ExportDescription:
        """Write everything into an existing folder."""
        graph = make_graph(self._source(), require_format(self._options.format))
        described = graph.described()
        lookups = graph.source.lookups
        if self._base is not None:
            self._require_same_model(described, lookups)
        known = self._base.description if self._base is not None else None
        here = known is None or known.graph.digest != described.digest
        if here:
            graph.write(folder)
        if self._trained.features is not None:
            shutil.copytree(self._trained.features, folder / FEATURES)
        written = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = {path.relative_to(folder).as_posix(): file_entry(path) for path in written}
        tables = {}
        for name in self._trained.tables:
            tables[name], files[tables[name].file] = self._table(folder, name)
        description = self._describe(described, lookups, tables, here, files)
        description.write(folder)
        return description

    def _describe(
        self,
        graph: GraphFile,
        lookups: tuple[Lookup, ...],
        tables: dict[str, TableEntry],
        here: bool,
        files: dict[str, FileEntry],
    ) -> ExportDescription:
        trained = self._trained
        return ExportDescription(
            flambeau=__version__,
            torch=torch.__version__,
            id=secrets.token_hex(16),
            created=time.time(),
            run=trained.run,
            checkpoint=trained.checkpoint,
            graph=graph,
            graph_here=here,
            lookups=lookups,
            tables=tables,
            weights=self._weights(),
            **dict(trained.bound),
            since=None if self._base is None else self._base.since,
            files=files,
        )

    def _source(self) -> GraphSource:
        trained, exact = self._trained, self._options.tables == "fp32"
        values = self._values
        inside = self._inside() if self._fits_inside() else None
        lookups: tuple[Lookup, ...] = ()
        if inside is None and trained.tables:
            lookups = find_lookups(trained.model, self._arguments, values)
        backend = trained.backend
        look_up = LookUps(lookups, backend) if lookups and backend is not None else None
        return GraphSource(
            trained.model, self._arguments, self._cut, lookups, look_up, inside, exact
        )

    def _cut(self, rows: int) -> dict[str, Leaf]:
        return {
            name: value.slice(0, rows) if isinstance(value, Jagged) else value[:rows].contiguous()
            for name, value in self._values.items()
        }

    def _fits_inside(self) -> bool:
        """Return whether the graph contains the tables: they are small, and ids are tensors."""
        tables = self._trained.tables
        if not tables:
            return False
        if self._base is not None and self._base.description is not None:
            return self._base.description.graph.lookups == "inside"
        size = sum(len(table) * table.spec.dim * 4 for table in tables.values())
        if size > self._options.inside_mb * 1e6:
            return False
        calls = record_calls(self._trained.model, self._arguments, self._values)
        return not any(isinstance(call.ids, Jagged) for call in calls)

    def _inside(self) -> Any:
        tables: dict[str, tuple[Ids, Any]] = {}
        for name, table in self._trained.tables.items():
            ids = sorted_ids(table)
            tables[name] = ids, as_stored(table.pull(ids), self._stored(name))
        unrolled = self._options.format == "onnx"

        def make(rows: SparseEmbedding) -> nn.Module:
            ids, values = tables[rows.spec.name]
            return InsideTable(rows, ids, values, default_row(rows.spec), unrolled=unrolled)

        return make

    def _stored(self, name: str) -> Stored:
        if self._options.tables == "fp32":
            return "fp64" if self._trained.tables[name].spec.dtype == "fp64" else "fp32"
        return "bf16" if self._options.tables == "bf16" else "int8"

    def _table(self, folder: Path, name: str) -> tuple[TableEntry, FileEntry]:
        table, stored = self._trained.tables[name], self._stored(name)
        ids, removed = sorted_ids(table), None
        if self._base is not None:
            old = self._base.tables[name]
            before = old.ids()
            removed = before[~table.has(before)]
            ids = changed_ids(ids, table, old, stored)
        file = f"tables/{name}.safetensors"
        (folder / "tables").mkdir(exist_ok=True)
        entry = write_table(folder / file, ids, table, stored, removed)
        described = TableEntry(
            file=file,
            rows=len(ids),
            removed=0 if removed is None else len(removed),
            dim=table.spec.dim,
            values=stored,
            default=tuple(default_row(table.spec).tolist()),
        )
        return described, entry

    def _weights(self) -> dict[str, tuple[int, ...]]:
        model = self._trained.model
        return {name: tuple(weight.shape) for name, weight in model.state_dict().items()}

    def _require_same_model(self, graph: GraphFile, lookups: tuple[Lookup, ...]) -> None:
        """Raise `ConfigError` unless a delta has the same model, and tables stored the same way."""
        assert self._base is not None
        differs = []
        known = self._base.description
        if self._base.tables.keys() != self._trained.tables.keys():
            differs.append("it has other tables")
        elif known is not None:
            tables = self._trained.tables
            ours = {name: (tables[name].spec.dim, self._stored(name)) for name in tables}
            if ours != {name: (t.dim, t.values) for name, t in known.tables.items()}:
                differs.append("its tables have other dimensions, or are stored in another format")
            if (known.graph.format, known.graph.inputs) != (graph.format, graph.inputs):
                differs.append("its graph has another format or other inputs")
            if (known.lookups, known.binding) != (lookups, self._trained.bound.binding):
                differs.append("its columns or lookups differ")
            if known.weights and known.weights != self._weights():
                differs.append("its model has other weights")
        if differs:
            raise ConfigError(
                f"since={self._base.name}: {' and '.join(differs)}, so there is no delta to it; "
                "export everything, without since"
            )


def _parts(trained: TrainedModel, names: list[str]) -> tuple[Arguments, dict[str, Leaf]]:
    """Return the example's arguments, with rows repeated if there are few."""
    whole = trained.example
    rows = torch.arange(EXAMPLE_ROWS[0]) % whole.size
    return take_apart(*trained.binder.arguments(whole.take(rows)), names)
