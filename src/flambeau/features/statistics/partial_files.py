"""A statistic in progress: gathered in memory, spilled to files, and finished from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

import pyarrow as pa

from flambeau.features.statistics.partial_tables import PartialTables, write_partitions
from flambeau.features.statistics.statistic import Accumulator, Statistic, Workspace

#: Default bytes of memory to finish a statistic.
_MEMORY = 1 << 28


def finish_files(statistic: Statistic, paths: Sequence[Path], memory: int = _MEMORY) -> pa.Table:
    """Return a statistic whose partial tables are in files, in the order of shards."""
    space = Workspace(paths[0].parent, memory)
    return pa.concat_tables(statistic.stream(PartialTables(paths), space)).combine_chunks()


@final
class Gathering:
    """A statistic in progress: an accumulator in memory, and the files written so far."""

    def __init__(self, statistic: Statistic, folder: Path, name: str) -> None:
        self._statistic, self._folder, self._name = statistic, folder, name
        self.accumulator: Accumulator = statistic.accumulator()
        self.files: list[Path] = []

    def spill(self) -> bool:
        """Write what is in memory to a file; return whether there was anything."""
        tables = self.accumulator.take()
        if not tables:
            return False
        path = self._folder / f"{self._name}-{len(self.files):04}.arrow"
        write_partitions(path, tables)
        self.files.append(path)
        return True

    def finish(self, memory: int = _MEMORY) -> pa.Table:
        """Return the statistic, from memory and files."""
        if self.files:
            self.spill()
            return finish_files(self._statistic, self.files, memory)
        tables = self.accumulator.take()
        merged = [self._statistic.merge([tables[part]]) for part in sorted(tables)]
        return self._statistic.finish(merged)
