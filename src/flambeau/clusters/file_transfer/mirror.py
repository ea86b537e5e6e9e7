"""A replacement of the run directory, for agents that do not see the driver's files."""

import contextlib
import errno
import fcntl
import glob
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, final

from flambeau.clusters.file_transfer.file_parts import parts_of
from flambeau.coordination.file_messages import FilesSent

if TYPE_CHECKING:
    from flambeau.clusters.file_transfer.depot import Depot


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@final
class Mirror:
    """An agent's own directory in place of the run directory.

    The agent holds its lock. An agent that was killed leaves a directory whose lock is free, which
    the next agent of the same user on this machine removes.
    """

    def __init__(self, parent: str | None, limit: int, depot: "Depot | None" = None) -> None:
        folder = Path(parent or tempfile.gettempdir())
        # With the machine's name, as other machines with this folder may not see its locks.
        prefix = f"flambeau-mirror-{platform.node()}-"
        for left in folder.glob(f"{glob.escape(prefix)}*"):
            _remove_unused(left)
        self._lock: int | None = None
        while self._lock is None:  # another agent may remove a new one as unused
            self.root = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self._lock = _locked(self.root, new=True)
        self._limit, self._depot = limit, depot

    def send(self, agent: int, directory: str, send: Callable[..., object]) -> None:
        """Send all files of a directory, its manifest last; it may be pruned meanwhile."""
        try:
            self._send(agent, directory, send)
        except FileNotFoundError:
            send(FilesSent(agent, directory, gone=True))

    def _send(self, agent: int, directory: str, send: Callable[..., object]) -> None:
        from flambeau.checkpoint.manifest import MANIFEST  # most agents see the run directory

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
        """Copy files from the depot."""
        assert self._depot is not None
        self._depot.get(names, self.root)

    def forget(self, kept: list[str]) -> None:
        """Remove checkpoints that the driver has not kept; newer ones have yet to be sent to it."""
        folder = self.root / "checkpoints"
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name not in kept and name < max(kept, default=""):
                shutil.rmtree(folder / name, ignore_errors=True)

    def remove(self) -> None:
        """Remove the directory and release its lock."""
        shutil.rmtree(self.root, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_unused(root: Path) -> None:
    """Remove a directory that no agent has locked."""
    lock = _locked(root, new=False)
    if lock is not None:
        shutil.rmtree(root, ignore_errors=True)
        os.close(lock)


def _locked(root: Path, *, new: bool) -> int | None:
    """Lock a directory, which is `new` if this process has just made it; return a descriptor.

    Return None if another process holds the lock, or if the directory is gone or another user's. On
    a file system without locks, a new one gets only a descriptor, and others cannot be locked.
    """
    with contextlib.ExitStack() as stack:
        try:
            lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, lock)
            # A file server may assign a new directory to another user.
            if not new and os.fstat(lock).st_uid != os.getuid():
                return None
            _flock(lock, needed=not new)
            if not os.path.samestat(os.stat(root, follow_symlinks=False), os.fstat(lock)):
                return None
        except (FileNotFoundError, NotADirectoryError, PermissionError, BlockingIOError):
            return None
        stack.pop_all()
        return lock


def _flock(descriptor: int, *, needed: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        if needed:
            raise BlockingIOError(*error.args) from error
