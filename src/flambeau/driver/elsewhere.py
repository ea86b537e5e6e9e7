"""Running the driver of a job in a process that workers can reach, while this process watches it.

A client of Ray (`ray://`) is outside the cluster. It sends the call to a process on the head
node, forwards signals, and prints the output of that process. The folders of the call are copied:
they are uploaded before it and fetched after it, even if the job has failed.
"""

import contextlib
import io
import os
import pickle
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from flambeau.checkpoint import RunDirectory
from flambeau.config import Cluster, Ray
from flambeau.config.data import is_ray_dataset
from flambeau.driver.control.signals import Signals
from flambeau.errors import JobFailedError, MissingDependencyError

if TYPE_CHECKING:
    from flambeau.clusters.ray.client import RemoteDriver

Value = TypeVar("Value")

#: The module that the process on the cluster runs.
MODULE = "flambeau.driver.elsewhere_process"
POLL_SECONDS = 0.5
#: A file in a folder whose newest version is on the head node; it holds the folder's name there.
MARK = ".flambeau-elsewhere"


def is_elsewhere(cluster: Cluster) -> bool:
    """Return whether workers cannot reach this process because it is a client of Ray."""
    if not isinstance(cluster, Ray):
        return False
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return bool(ray.util.client.ray.is_connected())
    address = cluster.address or os.environ.get("RAY_ADDRESS") or ""
    return address.startswith("ray://")


def drive_elsewhere(
    cluster: Cluster, drive: Callable[[Cluster], Value], folders: Sequence[Path] = ()
) -> Value:
    """Call `drive` on the cluster and return its result; `folders` are those that it works in."""
    assert isinstance(cluster, Ray)
    try:
        from flambeau.clusters.ray.client import RemoteDriver
        from flambeau.clusters.ray.driver import OUTCOME
    except ImportError as error:
        raise MissingDependencyError(
            f"cluster=Ray(...) needs Ray ({error}): pip install 'flambeau[ray]'"
        ) from error
    there = cluster.model_copy(update={"address": None, "runtime_env": _inside(cluster)})
    call_name = uuid.uuid4().hex
    with RemoteDriver(cluster) as driver:
        outcome = driver.folder(call_name) / OUTCOME
        with contextlib.ExitStack() as stack:
            places = {
                path.absolute(): stack.enter_context(_carried(driver, path)) for path in folders
            }
            back = {str(place): str(path) for path, place in places.items()}
            call = dumps((drive, there, back, outcome), places)
            driver.start(MODULE, call, _terminal())
            code = _attend(driver)
        data = driver.read_file(call_name, OUTCOME)
        driver.remove(call_name)
    value: Value = _value_of(data, code)
    return value


def _inside(cluster: Ray) -> dict[str, Any] | None:
    """Return the runtime environment for a process that already runs in its working folder."""
    environment = cluster.runtime_env
    if environment is None or "://" in str(environment.get("working_dir", "://")):
        return environment
    return {**environment, "working_dir": "."}


@contextlib.contextmanager
def _carried(driver: "RemoteDriver", path: Path) -> Iterator[Path]:
    """Copy a folder to the head node and back; yield its path there.

    If an earlier call lost its connection, the folder is still there, and newer than the local one.
    """
    mark = path / MARK
    with RunDirectory(path).lock():
        name = mark.read_text() if mark.exists() else f"{uuid.uuid4().hex}/{path.absolute().name}"
        mark.write_text(name)
        if not driver.has(name):
            driver.upload(path, name, but=MARK)
        try:
            yield driver.folder(name)
        finally:
            driver.fetch(name, path, but=MARK)
            driver.remove(name)
            mark.unlink()


def _terminal() -> tuple[int, int] | None:
    """Return the size (columns, lines) of stderr's terminal, for the progress bar, if it is one."""
    if not sys.stderr.isatty():
        return None
    size = os.get_terminal_size(sys.stderr.fileno())
    return size.columns, size.lines


def _attend(driver: "RemoteDriver") -> int:
    """Print the process's output and forward signals until it exits; return its exit code."""
    signals, passed_on = Signals(), 0
    with signals.caught():
        while True:
            output = driver.poll(POLL_SECONDS)
            for stream, data in output.chunks:
                file = sys.stdout if stream == 1 else sys.stderr
                file.write(data.decode(errors="replace"))
                file.flush()
            if output.exit_code is not None:
                return output.exit_code
            while passed_on < signals.count:
                driver.send_signal(signals.last or signal.SIGTERM)
                passed_on += 1


def _value_of(data: bytes | None, code: int) -> Any:
    """Return the result of the call, or raise its error."""
    if data is None:
        raise JobFailedError(
            f"the process on the head node that drove the job ended with exit code {code} and no "
            "result. Run the same call to resume from the last checkpoint"
        )
    failed, value = pickle.loads(data)
    if failed:
        raise value
    return value


def dumps(value: Any, moved: Mapping[Path, Path]) -> bytes:
    """Pickle a value; paths inside a folder of `moved` become paths inside its new location."""
    buffer = io.BytesIO()
    _Pickler(buffer, moved).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, moved: Mapping[Path, Path]) -> None:
        super().__init__(file, protocol=5)
        self._moved = moved

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Path):
            for before, after in self._moved.items():
                if value.absolute().is_relative_to(before):
                    return Path, (str(after / value.absolute().relative_to(before)),)
        if is_ray_dataset(value):
            from flambeau.clusters.ray.client import dataset_of, lineage_of

            return dataset_of, (lineage_of(value),)
        return super().reducer_override(value)


def retold(error: BaseException, places: Mapping[str, str]) -> BaseException:
    """Replace the paths in an error's message by those that the client uses; return the error."""

    def here(part: Any) -> Any:
        for there, known in places.items():
            part = part.replace(there, known) if isinstance(part, str) else part
        return part

    error.args = tuple(map(here, error.args))
    return error


def portable(error: BaseException) -> BaseException:
    """Return an error that can be pickled: `error`, or one with its text."""
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - user exceptions may hold any value
        return JobFailedError(f"{type(error).__name__}: {error}")
    return error
