"""Transfer of a run's files between the driver and agents that do not see them."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from flambeau.checkpoint import RunDirectory, prune
from flambeau.checkpoint.manifest import MANIFEST, Manifest
from flambeau.checkpoint.references import checkpoints, mark_best, mark_latest
from flambeau.checkpoint.retention import remove_checkpoint
from flambeau.clusters.file_transfer.file_parts import INIT, TOKEN, parts_of, write_part
from flambeau.coordination.file_messages import (
    FilePart,
    FilesSent,
    FilesStored,
    KeepFiles,
    WantFiles,
)
from flambeau.data.sources.shared_files import too_large
from flambeau.errors import ConfigError, JobFailedError

if TYPE_CHECKING:
    from flambeau.clusters.file_transfer.depot import Depot

#: Where files of a checkpoint are stored until it is complete.
INCOMING = ".incoming"

Send = Callable[..., object]


@final
class Carrier:
    """The driver's side, which sends agents the files they need and fetches what they save."""

    def __init__(
        self,
        run: RunDirectory,
        keep: int,
        initial: Path | None,
        limit: int = 0,
        depot: "Depot | None" = None,
    ) -> None:
        self._run, self._keep, self._initial = run, keep, initial
        self._limit, self.depot = limit, depot
        #: Agents that have the data of the driver's memory, and whether it is in the depot.
        self._supplied: set[bytes] = set()
        self._deposited = False
        #: Checkpoints in transfer: agents that have not sent all their files, and the manifest.
        self._coming: dict[str, set[int]] = {}
        self._manifests: dict[str, bytearray] = {}
        self._best: dict[str, tuple[int, str, float]] = {}
        self._stored: dict[str, list[str]] = {}
        self._gone: set[str] = set()
        self._fetching: dict[str, Future[None]] = {}
        self._fetcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flambeau-depot")

    @property
    def busy(self) -> bool:
        """Whether a transfer is in progress."""
        return bool(self._coming or self._fetching)

    def bring(self, peer: bytes, checkpoint: str | None, send: Send) -> None:
        """Send an agent the user's code and the checkpoints that its roles start from."""
        own = [path for path in sorted(self._run.code.glob("**/*")) if path.is_file()]
        if checkpoint is not None:
            own += files_of((self._run.checkpoints / checkpoint).resolve())
        self._send("", self._run.path.resolve(), own, send)
        if self._initial is not None:
            others = files_of(self._initial)
            self._send(f"{INIT}/", self._initial.parents[1], others, send)
        if peer not in self._supplied:
            self._supplied.add(peer)
            self._supply(send)

    def _supply(self, send: Send) -> None:
        """Send an agent the data of the driver's memory, through the depot if it is large."""
        files = sorted(self._run.shared.glob("*"))
        size = sum(map(_size, files))
        if size <= self._limit:
            self._send("", self._run.path.resolve(), files, send)
            return
        if self.depot is None:
            raise ConfigError(too_large(size, self._limit))
        named = {path.relative_to(self._run.path).as_posix(): path for path in files}
        if not self._deposited:
            self.depot.put(named)
            self._deposited = True
        send(FilesStored(list(named)))

    def _send(self, place: str, root: Path, files: list[Path], send: Send) -> None:
        """Send files, even those that an agent has: a step may have been saved again."""
        paths = [path.resolve() for path in files]
        named = {place + path.relative_to(root).as_posix(): path for path in paths}
        if self.depot is not None and sum(map(_size, paths)) > self._limit:
            self.depot.put(named)
            send(FilesStored(list(named)))
            return
        for name, path in named.items():
            for part, data in parts_of(root, path):
                send(FilePart(name, part.start), [data])

    def saved(self, step: int, best: Any, agents: dict[int, Send]) -> None:
        """Fetch a checkpoint that is complete on the machines of its workers."""
        name = f"checkpoints/step-{step:08d}"
        self._coming[name] = set(agents)
        if best is not None:
            self._best[name] = (step, best[0], best[1])
        for send in agents.values():
            send(WantFiles(name))

    def part(self, part: FilePart, data: Any) -> None:
        """Write a part of a file; keep a manifest, which commits a checkpoint, in memory."""
        directory, _, name = part.path.rpartition("/")
        if name == MANIFEST:
            if part.start == 0:
                self._manifests[directory] = bytearray()
            self._manifests[directory].extend(data)
        else:
            write_part(self._run.path / INCOMING, part, data)

    def sent(self, message: FilesSent, agents: dict[int, Send]) -> None:
        """Record that an agent has sent its files of a checkpoint; the last agent completes it."""
        if message.too_large:
            raise JobFailedError(
                f"the checkpoint {message.directory} has {message.too_large >> 20:,} MB on one "
                "machine, more than carry_mb= of the cluster lets travel to the driver: name a "
                "folder that all machines reach with depot='hdfs://...' (any fsspec URL) of the "
                "cluster, raise the limit, or choose a run_dir that all machines share"
            )
        missing = self._coming.get(message.directory)
        if missing is None:
            return  # given up
        self._stored.setdefault(message.directory, []).extend(message.stored)
        if message.gone:
            self._gone.add(message.directory)
        missing.discard(message.agent)
        if missing:
            return
        del self._coming[message.directory]
        stored = self._stored.pop(message.directory)
        if not stored:
            self._commit(message.directory, agents)
            return
        assert self.depot is not None
        target = self._run.path / INCOMING
        self._fetching[message.directory] = self._fetcher.submit(self.depot.take, stored, target)

    def lost(self, agent: int) -> None:
        """Give up checkpoints of which a lost agent has not sent all its files."""
        for directory in [name for name, missing in self._coming.items() if agent in missing]:
            del self._coming[directory]
            for waiting in (self._manifests, self._best, self._stored):
                waiting.pop(directory, None)
            self._gone.discard(directory)
            shutil.rmtree(self._run.path / INCOMING / directory, ignore_errors=True)

    def settle(self, agents: dict[int, Send]) -> None:
        """Commit the checkpoints that have been fetched from the depot."""
        for directory, fetched in list(self._fetching.items()):
            if fetched.done():
                del self._fetching[directory]
                fetched.result()
                self._commit(directory, agents)

    def close(self) -> None:
        """Stop fetching and remove the depot."""
        self._fetcher.shutdown(cancel_futures=True)
        if self.depot is not None:
            self.depot.remove()

    def _commit(self, directory: str, agents: dict[int, Send]) -> None:
        come, path = self._run.path / INCOMING / directory, self._run.path / directory
        if directory in self._manifests:
            (come / MANIFEST).write_bytes(self._manifests.pop(directory))
        if directory in self._gone or not (come / MANIFEST).is_file():
            # Pruned before all of it was sent; a newer one follows.
            self._gone.discard(directory)
            shutil.rmtree(come, ignore_errors=True)
            return
        manifest = Manifest.read(come)
        remove_checkpoint(path)
        path.parent.mkdir(exist_ok=True)
        come.rename(path)
        mark_latest(self._run, manifest.step, manifest.metrics)
        if directory in self._best:
            mark_best(self._run, *self._best.pop(directory))
        prune(self._run, self._keep)
        kept = [path.name for path in checkpoints(self._run)]
        for send in agents.values():
            send(KeepFiles(kept))


def remove_traces(run_dir: Path) -> None:
    """Remove the token and incomplete transfers from a run directory."""
    (run_dir / TOKEN).unlink(missing_ok=True)
    shutil.rmtree(run_dir / INCOMING, ignore_errors=True)


def _size(path: Path) -> int:
    return path.stat().st_size


def files_of(checkpoint: Path) -> list[Path]:
    """Return all files of a checkpoint, including those of others on which it builds."""
    manifest = Manifest.read(checkpoint)
    names = {*manifest.files, MANIFEST}
    names |= {
        name for table in manifest.tables.values() for layer in table.layers for name in layer
    }
    found = {(checkpoint / name).resolve() for name in names}
    for other in {path.parent for path in found}:
        found |= {path for path in other.glob("*") if path.is_file()}
    return sorted(found)
