"""A model's files on their way to the Python workers: once for each machine."""

import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from pyspark.sql import SparkSession

from flambeau.data.sources.urls import file_system, is_url, local_path
from flambeau.errors import DataError
from flambeau.spark.folder import MODEL, digest, files_of

#: What may travel inside a query, in bytes: Spark Connect takes messages of 128 MB.
MOST_CONNECT, MOST_CLASSIC = 64 << 20, 512 << 20
_UNUSED = 86_400.0


@final
@dataclass(frozen=True)
class Shipped:
    """A model's folder for whoever is elsewhere: its place, and its files if they are small."""

    digest: str
    place: str
    files: dict[str, bytes] | None
    nbytes: int

    def folder(self, cache: Path | None = None) -> Path:
        """The files on this machine: where they are, or else copied there once."""
        here = Path(local_path(self.place))
        if (here / MODEL).is_file() and digest(here) == self.digest:
            return here
        cache = cache or Path(tempfile.gettempdir()) / f"flambeau-models-{os.getuid()}"
        cache.mkdir(mode=0o700, exist_ok=True)
        target = cache / self.digest
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                _forget_unused(cache)
                self._copy(target)
            os.utime(target)
        return target

    def _copy(self, target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=target.parent) as making:
            made = Path(making) / "model"
            if self.files is not None:
                for name, data in self.files.items():
                    (made / name).parent.mkdir(parents=True, exist_ok=True)
                    (made / name).write_bytes(data)
            elif is_url(self.place):
                found, path = file_system(self.place)
                found.get(path, str(made), recursive=True)
            else:
                raise DataError(
                    f"the model's files ({self.nbytes >> 20} MB) are in {self.place}, which this "
                    "executor cannot see, and are too large to be sent: save the model where all "
                    "executors can read it, and load it from there"
                )
            made.rename(target)


def ship(folder: Path, place: str, session: SparkSession) -> Shipped:
    """A model's folder for the workers of this session; `place` is where they may find it."""
    paths = files_of(folder)
    nbytes = sum(path.stat().st_size for path in paths.values())
    most = MOST_CONNECT if is_connect(session) else MOST_CLASSIC
    files = None
    if nbytes <= most and not _on_this_machine(session):
        files = {name: path.read_bytes() for name, path in paths.items()}
    return Shipped(digest(folder), place, files, nbytes)


def is_connect(session: Any) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _on_this_machine(session: SparkSession) -> bool:
    master = session.conf.get("spark.master", "") or ""
    return not is_connect(session) and master.partition("[")[0] == "local"


def _forget_unused(cache: Path) -> None:
    """Remove models that nobody has asked for in a day."""
    for entry in cache.iterdir():
        if entry.is_dir() and time.time() - entry.stat().st_mtime > _UNUSED:
            shutil.rmtree(entry, ignore_errors=True)
