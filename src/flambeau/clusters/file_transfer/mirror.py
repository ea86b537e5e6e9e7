"""The run directory, for agents that do not see the driver's files."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, final

from flambeau.clusters.file_transfer.file_parts import parts_of
from flambeau.coordination.file_messages import FilesSent

if TYPE_CHECKING:
    from flambeau.clusters.file_transfer.depot import Depot


@final
class Mirror:
    """A directory of an agent's own in the place of the run's."""

    def __init__(self, parent: str | None, limit: int, depot: "Depot | None" = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="flambeau-", dir=parent))
        self._limit, self._depot = limit, depot

    def send(self, agent: int, directory: str, send: Callable[..., object]) -> None:
        """Send all files of a directory, what commits them last; it may be pruned meanwhile."""
        try:
            self._send(agent, directory, send)
        except FileNotFoundError:
            send(FilesSent(agent, directory, gone=True))

    def _send(self, agent: int, directory: str, send: Callable[..., object]) -> None:
        from flambeau.checkpoint.manifest import MANIFEST  # most agents see the run's own files

        files = sorted((self.root / directory).glob("*"), key=lambda path: path.name == MANIFEST)
        size = sum(path.stat().st_size for path in files)
        if size <= self._limit:
            for path in files:
                for part, data in parts_of(self.root, path):
                    send(part, [data])
            send(FilesSent(agent, directory))
        elif self._depot is None:
            send(FilesSent(agent, directory, too_large=size))
        else:
            named = {path.relative_to(self.root).as_posix(): path for path in files}
            self._depot.put(named)
            send(FilesSent(agent, directory, stored=list(named)))

    def fetch(self, names: list[str]) -> None:
        """Take over files that wait in the depot."""
        assert self._depot is not None
        self._depot.get(names, self.root)

    def forget(self, kept: list[str]) -> None:
        """Remove checkpoints that the driver has not kept; newer ones are still to come there."""
        folder = self.root / "checkpoints"
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name not in kept and name < max(kept, default=""):
                shutil.rmtree(folder / name, ignore_errors=True)

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.root, ignore_errors=True)
