"""An export and those that it is a delta to, opened together."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from flambeau.checkpoint.soundness import file_entry
from flambeau.errors import DataError
from flambeau.inference.export_description import (
    ExportDescription,
    Since,
    is_export,
    read_description,
)
from flambeau.inference.exported_tables import ExportedFile, ExportedTable
from flambeau.tables.saved.mapped import MappedTable

#: Function that opens the tables of the checkpoint of a run, for a delta to that checkpoint.
OpenRun = Callable[[Path, Since], dict[str, MappedTable]]


@final
@dataclass(frozen=True)
class Chain:
    """Folders from the newest to the oldest, with their descriptions."""

    folders: tuple[Path, ...]
    descriptions: tuple[ExportDescription, ...]
    run_tables: dict[str, MappedTable]

    @property
    def newest(self) -> ExportDescription:
        """Description of the newest folder, which is the valid one."""
        return self.descriptions[0]

    def graph_path(self) -> Path:
        """Return the file of the newest graph, after checking that it is undamaged."""
        for folder, description in zip(self.folders, self.descriptions, strict=True):
            if description.graph_here:
                _require_as_written(folder, description)
                return folder / description.graph.file
        raise DataError(f"{self.folders[0]} and what it adds to have no graph")

    def tables(self) -> dict[str, ExportedTable]:
        """Return all tables, each with its files in all folders."""
        return {name: self._table(name) for name in self.newest.tables}

    def _table(self, name: str) -> ExportedTable:
        entry = self.newest.tables[name]
        files = [
            ExportedFile(folder / description.tables[name].file)
            for folder, description in zip(self.folders, self.descriptions, strict=True)
        ]
        default = np.array(entry.default, np.float64 if entry.values == "fp64" else np.float32)
        return ExportedTable(default, files, self.run_tables.get(name))


def open_chain(folder: Path, open_run: OpenRun) -> Chain:
    """Open the export at `folder` with all that it is a delta to.

    Raise `DataError` if one of them is missing or not the right one.
    """
    chain = _open_chain(folder, open_run)
    pairs = zip(chain.folders, chain.descriptions, strict=True)
    old = [str(folder) for folder, description in pairs if description.files is None]
    if old:
        warnings.warn(
            f"{', '.join(old)}: written before exports had checksums, so damage is not noticed; "
            "export the run again to have them",
            stacklevel=2,
        )
    return chain


def _open_chain(folder: Path, open_run: OpenRun) -> Chain:
    folders, descriptions = [folder], [read_description(folder)]
    while (since := descriptions[-1].since) is not None:
        base = (folders[-1] / since.folder).resolve()
        if since.checkpoint is not None:
            return Chain(tuple(folders), tuple(descriptions), open_run(base, since))
        if not is_export(base):
            raise DataError(
                f"{folders[-1]} is a delta to {base}, which does not exist; put "
                "both into one folder, as they were written, or export everything"
            )
        found = read_description(base)
        if found.id != since.id:
            raise DataError(
                f"{folders[-1]} is a delta to another export than the one at {base}; "
                "export everything, or restore the right one"
            )
        if base in folders:
            raise DataError(f"{folder} adds to itself")
        folders.append(base)
        descriptions.append(found)
    return Chain(tuple(folders), tuple(descriptions), {})


def _require_as_written(folder: Path, description: ExportDescription) -> None:
    """Raise `DataError` if a graph's file is damaged; tables are checked where they are used."""
    tables = {table.file for table in description.tables.values()}
    for name, expected in (description.files or {}).items():
        if name not in tables and file_entry(folder / name) != expected:
            raise DataError(
                f"{folder / name} is damaged: its size or checksum does not match; copy "
                "the export again from its source, or export the run again"
            )


def newest_of(place: Path, loaded: str | None = None) -> Path:
    """Return the export to use at a place.

    For a folder of exports, it is the newest one in it. For an export, it is that export. If
    `loaded`, the id of an export in use, is given, it is the newest of its neighbours that is a
    delta to either.
    """
    if not is_export(place):
        found = _exports(place) if place.is_dir() else {}
        if not found:
            raise DataError(f"{place} is neither an export nor a folder of exports, nor a run")
        return max(found, key=lambda path: found[path].created)
    if loaded is None:
        return place
    own = read_description(place)
    around = _exports(place.resolve().parent)
    heirs = {own.id, loaded}
    best, created = place, own.created
    for path, description in sorted(around.items(), key=lambda item: item[1].created):
        if description.since is not None and description.since.id in heirs:
            heirs.add(description.id)
            if description.created > created:
                best, created = path, description.created
    return best


def _exports(place: Path) -> dict[Path, ExportDescription]:
    folders = [path for path in place.iterdir() if path.name[0] != "." and is_export(path)]
    return {path: read_description(path) for path in folders}
