"""Sending of a model's files to the Python workers, once for each machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from pyspark.sql import SparkSession

from flambeau.clusters.spark.cluster import is_connect
from flambeau.data.sources.urls import file_system, is_url, local_path
from flambeau.errors import DataError
from flambeau.spark.folder import MODEL, digest, files_of
from flambeau.spark.model_cache import ModelCache

#: Limits in bytes of what a query may contain: Spark Connect accepts messages of 128 MB.
MOST_CONNECT, MOST_CLASSIC = 64 << 20, 512 << 20


@final
@dataclass(frozen=True)
class Shipped:
    """A model's folder for workers: its place, and its files if they are small."""

    digest: str
    place: str
    files: dict[str, bytes] | None
    nbytes: int
    cache: ModelCache

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yield the folder of the files on this machine: the original, or else a copy."""
        here = Path(local_path(self.place))
        if (here / MODEL).is_file() and digest(here) == self.digest:
            yield here
            return
        with self.cache.opened(self.digest, self.nbytes, self._copy) as folder:
            yield folder

    def _copy(self, target: Path) -> None:
        if self.files is not None:
            for name, data in self.files.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(data)
        elif is_url(self.place):
            found, path = file_system(self.place)
            found.get(path, str(target), recursive=True)
        else:
            raise DataError(
                f"the model's files ({self.nbytes >> 20} MB) are in {self.place}, which this "
                "executor cannot see, and are too large to be sent: save the model where all "
                "executors can read it, and load it from there"
            )


def ship(folder: Path, place: str, session: SparkSession) -> Shipped:
    """Return a model's folder for the workers of a session, which may find it at `place`."""
    paths = files_of(folder)
    nbytes = sum(path.stat().st_size for path in paths.values())
    most = MOST_CONNECT if is_connect(session) else MOST_CLASSIC
    files = None
    if nbytes <= most and not _on_this_machine(session):
        files = {name: path.read_bytes() for name, path in paths.items()}
    return Shipped(digest(folder), place, files, nbytes, ModelCache.of(session))


def _on_this_machine(session: SparkSession) -> bool:
    master = session.conf.get("spark.master", "") or ""
    return not is_connect(session) and master.partition("[")[0] == "local"
