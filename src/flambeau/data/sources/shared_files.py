"""Files in which the driver shares its data with other processes."""

import errno
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar, final

from flambeau.config import ArrayData, FrameData
from flambeau.errors import ConfigError, DataError

Write = Callable[[IO[bytes]], None]
Data = TypeVar("Data")


@dataclass(frozen=True)
class SharedFile:
    """A file that another process opens by an inherited descriptor, or in the run directory."""

    fd: int | None = None
    path: str | None = None


class SharedFiles(ABC):
    """Storage for the data of a job, which is removed completely when it is closed."""

    #: Whether a file of the user can be referred to instead of being copied.
    refers: bool

    @abstractmethod
    def put(self, write: Write, what: str, size: int) -> SharedFile:
        """Return the file that `write` has filled; `what` it holds, and its size, are for messages.

        Raise `DataError` if there is no space for it.
        """

    @abstractmethod
    def close(self) -> None:
        """Remove all files, or close them."""


@final
class UnnamedFiles(SharedFiles):
    """Files without names, for processes that inherit their `descriptors`.

    Each file is removed when the last process that holds its descriptor ends.
    """

    refers = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.descriptors: list[int] = []

    def put(self, write: Write, what: str, size: int) -> SharedFile:
        with tempfile.TemporaryFile(dir=self._directory) as file:
            _fill(file, write, self._directory, what, size)
            descriptor = os.dup(file.fileno())
        os.set_inheritable(descriptor, True)
        self.descriptors.append(descriptor)
        return SharedFile(fd=descriptor)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


@final
class RunFiles(SharedFiles):
    """Files in a folder of the run directory, for agents that see it or receive its files.

    The total size of the files that agents receive is at most `limit` bytes (None: unlimited).
    """

    refers = False

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self._folder, self._limit = folder, limit
        self._files = self._bytes = 0

    def put(self, write: Write, what: str, size: int) -> SharedFile:
        self._bytes += size
        if self._limit is not None and self._bytes > self._limit:
            raise ConfigError(too_large(self._bytes, self._limit))
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / str(self._files)
        with path.open("wb") as file:
            _fill(file, write, self._folder, what, size)
        self._files += 1
        return SharedFile(path=f"{self._folder.name}/{path.name}")

    def close(self) -> None:
        if self._folder.exists():
            shutil.rmtree(self._folder)


def too_large(size: int, limit: int) -> str:
    """Return the error message about data that is too large to be sent in messages."""
    return (
        f"train= and valid= are at least {size / 1e6:,.0f} MB of this process's memory, and "
        f"carry_mb={limit >> 20} of the cluster is the most that travels in messages to agents "
        "that do not see the run directory: name a folder that all machines reach with "
        "depot='hdfs://...' (any fsspec URL) of the cluster, raise carry_mb, choose a run_dir that "
        "all machines share (with shared_files=True), or give files that they can read"
    )


def located(data: Data, run_dir: Path) -> Data:
    """Return data whose files, if they are in the run directory, are those in `run_dir`."""
    if isinstance(data, ArrayData):
        columns = {
            name: ref.model_copy(update={"path": ref.path and str(run_dir / ref.path)})
            for name, ref in data.columns.items()
        }
        return data.model_copy(update={"columns": columns})
    if isinstance(data, FrameData) and data.file is not None:
        return data.model_copy(update={"file": str(run_dir / data.file)})
    return data


def _fill(file: IO[bytes], write: Write, directory: Path, what: str, size: int) -> None:
    try:
        write(file)
        file.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataError(
            f"no space left in {directory} to share {what} with the workers "
            f"({size / 1e6:.0f} MB); free some or choose another directory"
        ) from error
