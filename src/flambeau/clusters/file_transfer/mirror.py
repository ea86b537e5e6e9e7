"""The run directory, for agents that do not see the driver's files."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from flambeau.coordination.file_messages import FilePart, FilesSent

if TYPE_CHECKING:
    from flambeau.clusters.file_transfer.depot import Depot

PART_BYTES = 8 << 20
#: Where agents find the run that this one starts from, below their own.
INIT = "init"
#: The file by which agents know the driver's run directory.
TOKEN = ".token"


def sees(run_dir: str, token: str) -> bool:
    """Whether this is the directory in which the driver has left its token."""
    try:
        return (Path(run_dir) / TOKEN).read_text(encoding="ascii") == token
    except OSError:
        return False


def parts_of(root: Path, path: Path) -> Iterator[tuple[FilePart, bytes]]:
    """A file, piece by piece, named by its place below `root`."""
    name = path.relative_to(root).as_posix()
    with path.open("rb") as file:
        data = file.read(PART_BYTES)
        yield FilePart(name, 0), data  # also of an empty file
        while data := file.read(PART_BYTES):
            yield FilePart(name, file.tell() - len(data)), data


def below(root: Path, name: str) -> Path:
    """A place below `root`, and nowhere else."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise ValueError(f"{name} is not below {root}")
    return root / name


def write_part(root: Path, part: FilePart, data: Any) -> None:
    """Put a piece into its place; nothing outside `root` is touched."""
    path = below(root, part.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if part.start else "wb") as file:
        file.seek(part.start)
        file.write(data)


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
