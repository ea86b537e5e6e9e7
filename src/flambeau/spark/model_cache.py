"""Cache of models that were copied to a machine, for all Python workers of a user."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from flambeau.clusters.spark.cluster import setting
from flambeau.errors import ConfigError, DataError

#: Settings of a Spark session: the cache folder on executors, and its limit in megabytes.
FOLDER_SETTING, SIZE_SETTING = "spark.flambeau.modelCache.dir", "spark.flambeau.modelCache.mb"
DEFAULT_MB = 10 << 10
_UNUSED_SECONDS = 86_400.0
#: Type and permission bits of a folder that only its owner may use, and their mask.
_PRIVATE, _PRIVATE_BITS = 0o040000, 0o170077


@final
@dataclass(frozen=True)
class ModelCache:
    """Cache in the folder `flambeau-models-<user id>` in `parent` (None: the temporary folder).

    Before a model is added, those that were not used for a day are removed, and the least recently
    used ones until it fits into `limit` bytes.
    """

    parent: str | None = None
    limit: int = DEFAULT_MB << 20

    @classmethod
    def of(cls, session: Any) -> "ModelCache":
        """Return the cache that the settings of a session describe."""
        megabytes = setting(session, SIZE_SETTING, str(DEFAULT_MB))
        if not megabytes.isdecimal():
            raise ConfigError(f"{SIZE_SETTING}={megabytes}: give a number of megabytes")
        return cls(setting(session, FOLDER_SETTING, "") or None, int(megabytes) << 20)

    @contextmanager
    def opened(self, name: str, nbytes: int, copy: Callable[[Path], None]) -> Iterator[Path]:
        """Yield the folder of a model, written by `copy` if necessary; it is kept until the end."""
        root = self._folder()
        target = root / name
        with (root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            while not target.is_dir():
                # Between two locks another process may write the model, or remove it again.
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not target.is_dir():
                    self._copy_in(target, nbytes, copy)
                fcntl.flock(lock, fcntl.LOCK_SH)
            os.utime(target)
            yield target

    def _copy_in(self, target: Path, nbytes: int, copy: Callable[[Path], None]) -> None:
        self._make_room(target.parent, nbytes)
        with tempfile.TemporaryDirectory(dir=target.parent) as making:
            copy(Path(making) / "model")
            (Path(making) / "model").rename(target)

    def _folder(self) -> Path:
        folder = Path(self.parent or tempfile.gettempdir()) / f"flambeau-models-{os.getuid()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.getuid() or found.st_mode & _PRIVATE_BITS != _PRIVATE:
            raise DataError(
                f"{folder} is not a folder of this user alone, so models that are loaded from it "
                f"could be another user's: remove it, or set {FOLDER_SETTING} to another place"
            )
        return folder

    def _make_room(self, root: Path, nbytes: int) -> None:
        if nbytes > self.limit:
            raise DataError(
                f"the model's files ({nbytes >> 20:,} MB) are larger than the model cache of an "
                f"executor ({self.limit >> 20:,} MB): raise {SIZE_SETTING}, or save the model "
                "where all executors see it as a path"
            )
        used = sorted((path.stat().st_mtime, path) for path in root.iterdir() if path.is_dir())
        room = self.limit - sum(_size(path) for _, path in used)
        for when, path in used:
            if room < nbytes or time.time() - when > _UNUSED_SECONDS:
                room += _size(path)
                shutil.rmtree(path)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
