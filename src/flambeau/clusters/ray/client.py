"""A Ray client (`ray://`): it is outside the cluster, and workers cannot connect to it."""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import ray
import ray.data
from ray.exceptions import RayActorError, RayTaskError

from flambeau.clusters.ray.address import require_known_keys
from flambeau.clusters.ray.driver import DriverActor, FileInfo, Output, list_files
from flambeau.config import Ray
from flambeau.errors import ConfigError, FlambeauError, JobFailedError, MissingDependencyError
from flambeau.version import __version__

#: The resource that only the head node has.
_HEAD = "node:__internal_head__"
_PART = 8 << 20
#: Ray starts a process for each client; on a busy head node that may fail.
_ATTEMPTS = 3
_SERVER_FAILED = (
    "Starting Ray client server failed",
    "Proxy failed to Connect to backend",
    "psutil.ZombieProcess",  # it ended while Ray checked whether it was running
)


def connect_client(settings: Ray) -> None:
    """Join the cluster at the address in the settings, unless this process is a client already."""
    require_known_keys(settings.runtime_env)
    if ray.is_initialized():
        return
    address = settings.address or os.environ["RAY_ADDRESS"]
    for left in reversed(range(_ATTEMPTS)):
        try:
            ray.init(address, runtime_env=settings.runtime_env, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if left and server_failed(error):
                continue
            raise ConfigError(f"cannot join the Ray at {address!r}: {error}") from error
        return


def server_failed(error: Exception) -> bool:
    """Return whether the process that Ray starts for a client has ended before it was ready."""
    return any(reason in str(error) for reason in _SERVER_FAILED)


@final
class RemoteDriver:
    """The process on the head node that drives a job for this one; a context manager."""

    def __init__(self, settings: Ray) -> None:
        connect_client(settings)
        self.settings = settings
        place: Any = ray.remote(DriverActor).options(
            num_cpus=0, resources={_HEAD: 0.001}, runtime_env=settings.runtime_env
        )
        self._actor = place.remote(__version__, settings.driver_dir)

    def __enter__(self) -> "RemoteDriver":
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._ask("stop")
        finally:
            ray.kill(self._actor)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return ray.get(getattr(self._actor, method).remote(*arguments))
        except RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, FlambeauError) else error) from None
        except RayActorError as error:
            raise _lost(error) from None

    def folder(self, name: str) -> Path:
        """Return the path of a folder on the head node."""
        return Path(self._ask("folder", name))

    def start(self, module: str, call: bytes, terminal: tuple[int, int] | None) -> None:
        """Start the process, which runs a module."""
        self._ask("start", module, call, terminal)

    def poll(self, seconds: float) -> Output:
        """Return new output of the process, after waiting at most `seconds` for some."""
        output: Output = self._ask("poll", seconds)
        return output

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._ask("send_signal", number)

    def has(self, name: str) -> bool:
        """Return whether a folder on the head node has files."""
        return bool(self._ask("files", name))

    def read_file(self, name: str, path: str) -> bytes | None:
        """Return the content of a file on the head node; None if it does not exist."""
        sizes = {info.path: info.size for info in self._ask("files", name)}
        if path not in sizes:
            return None
        parts = (
            self._ask("read", name, path, offset, _PART) for offset in range(0, sizes[path], _PART)
        )
        return b"".join(parts)

    def remove(self, name: str) -> None:
        """Remove a folder on the head node."""
        self._ask("remove", name)

    def upload(self, folder: Path, name: str, but: str) -> None:
        """Copy a folder to the head node, except for the file `but`."""
        for info in list_files(folder):
            if info.path == but:
                continue
            with (folder / info.path).open("rb") as file:
                for offset in range(0, max(info.size, 1), _PART):
                    data = file.read(_PART)
                    self._ask("write", name, info.path, offset, data, info.modified_ns)

    def fetch(self, name: str, folder: Path, but: str) -> None:
        """Make a folder equal to one on the head node, except for the file `but`.

        Files that have not changed are not copied again.
        """
        there = {info.path: info for info in self._ask("files", name)}
        here = {info.path: info for info in list_files(folder) if info.path != but}
        for path, info in there.items():
            if here.get(path) != info:
                self._fetch_file(name, info, folder / path)
        _remove_others(folder, here, there)

    def _fetch_file(self, name: str, info: FileInfo, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.fetched")
        with partial.open("wb") as file:
            for offset in range(0, info.size, _PART):
                file.write(self._ask("read", name, info.path, offset, _PART))
        os.utime(partial, ns=(info.modified_ns, info.modified_ns))
        partial.replace(target)


def _remove_others(
    folder: Path, here: Mapping[str, FileInfo], there: Mapping[str, FileInfo]
) -> None:
    """Remove files that the head node has removed, such as old checkpoints."""
    for path in here.keys() - there.keys():
        (folder / path).unlink()
        for parent in (folder / path).parents:
            if parent == folder or any(parent.iterdir()):
                break
            parent.rmdir()


def _lost(error: RayActorError) -> FlambeauError:
    text = str(error)
    found = re.search(r"No module named '?([\w.]+)", text)
    if found:
        return MissingDependencyError(
            f"the head node of Ray cannot load the job (no module {found[1]}): install it there, "
            "or ship it with Ray(runtime_env={'pip': [...]})"
        )
    first = (text.splitlines() or ["no reason given"])[0]
    return JobFailedError(
        f"the process on the head node that drove the job is lost ({first}). Run the same call to "
        "resume from the last checkpoint"
    )


def lineage_of(dataset: Any) -> bytes:
    """Return a Ray Dataset's lineage: its blocks belong to this process and cannot be sent."""
    if not dataset.has_serializable_lineage():
        raise ConfigError(
            "this Ray Dataset was made of data in memory, which a client of Ray (ray://) cannot "
            "hand over: read it from files with ray.data.read_parquet(...) and the like, or give "
            "the arrays or data frame themselves"
        )
    data: bytes = dataset.serialize_lineage()
    return data


def dataset_of(lineage: bytes) -> Any:
    """Return the Ray Dataset with the lineage that `lineage_of` returned."""
    return ray.data.Dataset.deserialize_lineage(lineage)
