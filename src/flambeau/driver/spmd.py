"""The same program in every process of a launcher: rank 0 drives a call, the others join it."""

import contextlib
import itertools
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle
import msgspec

from flambeau.clusters import outside_signals
from flambeau.clusters.agent_process import AgentOrder, be_agent
from flambeau.clusters.attached.launchers import Identity, identity_of
from flambeau.clusters.attached.meeting import Meeting, Participation, shown
from flambeau.clusters.attached.meeting_messages import Arrived, Order
from flambeau.clusters.machine import machine_identity
from flambeau.config import Attached, Cluster
from flambeau.config.settings import Settings
from flambeau.data.data_kinds import is_paths
from flambeau.driver.elsewhere import drive_elsewhere, is_elsewhere, portable
from flambeau.errors import JobFailedError, MessagingError

Value = TypeVar("Value")

#: How long an exiting process waits, after a failure, for rank 0 to show the error.
LAST_SECONDS = 10.0
#: The number of calls that this process has made; it is the same in all processes of a job.
_calls = itertools.count()


def together(
    cluster: Cluster,
    call: str,
    arguments: Mapping[str, str],
    drive: Callable[[Cluster], Value],
    folders: Sequence[Path] = (),
) -> Value:
    """Call `drive` in the process that drives the job, and return its result.

    That is this process, unless a launcher started it (see `fb.Attached`): then it is rank 0. The
    other ranks send it their `arguments`, which must be equal to its own, act as agents of the job,
    and return or raise the same. For a client of Ray it is a process on the cluster, to which the
    `folders` of the call are copied.
    """
    if is_elsewhere(cluster):
        return drive_elsewhere(cluster, drive, folders)
    if not isinstance(cluster, Attached):
        return drive(cluster)
    identity = identity_of(cluster)
    number = next(_calls)
    own = _arrived(identity, call, arguments)
    if identity.rank == 0:
        return _drive(cluster, identity, number, own, drive)
    value: Value = _take_part(cluster, identity, number, own)
    return value


def _arrived(identity: Identity, call: str, arguments: Mapping[str, str]) -> Arrived:
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    machine = machine_identity()
    gpus = _gpus()
    return Arrived(identity.rank, identity.size, node, machine, gpus, call, dict(arguments))


def _gpus() -> int:
    if not os.path.exists("/dev/nvidiactl"):  # importing torch takes seconds
        return 0
    import torch

    return torch.cuda.device_count()


def comparable(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a call as strings that are equal in all processes of a job.

    Models and functions are represented by their names only. In-memory data is omitted: only that
    of rank 0 is used.
    """
    data = {name: arguments.get(name) for name in ("train", "valid")}
    left_out = {name for name, value in data.items() if not is_paths(value)}
    return {name: shown(_plain(value)) for name, value in arguments.items() if name not in left_out}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Settings):
        return {type(value).__name__: _plain(value.model_dump())}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and len(value) < 1000:
        return [_plain(item) for item in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


# Rank 0


def _drive(
    cluster: Attached,
    identity: Identity,
    number: int,
    own: Arrived,
    drive: Callable[[Cluster], Value],
) -> Value:
    meeting = Meeting(cluster, identity, number)
    try:
        meeting.gather(own, cluster.start_timeout, _show)
        each = cluster.workers_per_process or _workers_per_process(meeting)
        workers = each * identity.size
        met = cluster.model_copy(update={"meeting": meeting, "workers": workers})
        value = drive(met)
    except BaseException as error:
        meeting.end(cloudpickle.dumps(portable(error)), failed=True)
        _keep_until_exit(meeting)
        raise
    meeting.end(cloudpickle.dumps(value), failed=False)
    meeting.close()
    return value


def _show(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _workers_per_process(meeting: Meeting) -> int:
    arrived = meeting.arrived.values()
    several = len({each.machine for each in arrived}) < len(arrived)
    return 1 if several else max(1, min(each.gpus for each in arrived))


_kept: list[Meeting] = []


def _keep_until_exit(meeting: Meeting) -> None:
    """Keep a failed call's connection open: when it closes, the others see that rank 0 exited."""
    while _kept:
        _kept.pop().close()
    _kept.append(meeting)


# The other ranks


def _take_part(cluster: Attached, identity: Identity, number: int, own: Arrived) -> Any:
    participation = Participation(cluster, identity, number)
    participation.arrive(own, cluster.start_timeout)
    told = Told(f"rank {identity.rank} on {own.node}", participation)
    try:
        with _withstanding_signals():
            failed, data = _obey(participation, identity)
            participation.farewell()
    except MessagingError as error:
        lost = JobFailedError(
            f"rank 0 has ended without a result ({error}). The same command resumes from the last "
            "checkpoint"
        )
        raise _raised_by_rank_0(lost, told) from None
    value = pickle.loads(data)
    if failed:
        raise _raised_by_rank_0(value, told)
    participation.close()
    return value


def _obey(participation: Participation, identity: Identity) -> tuple[bool, bytes]:
    """Act as an agent until rank 0 sends the result of the call; return (failed, result)."""
    lost: MessagingError | None = None
    while True:
        try:
            message, data = participation.next()
        except MessagingError as error:
            raise lost or error from None
        if not isinstance(message, Order):
            return message.failed, bytes(data)
        try:
            be_agent(msgspec.msgpack.decode(data, type=AgentOrder), job=identity.job)
        except MessagingError as error:
            lost = error  # rank 0 may send a better explanation


@contextlib.contextmanager
def _withstanding_signals() -> Iterator[None]:
    """Ignore signals that schedulers and terminals send to all processes: rank 0 handles them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return
    outside_signals.withstand()
    try:
        yield
    finally:
        outside_signals.restore()


@dataclass(frozen=True)
class Told:
    """The origin of an error that rank 0 has sent to this process, and shows itself."""

    name: str
    participation: Participation

    def end(self, error: BaseException) -> None:
        """Show one line of an error that ends this process, and wait until rank 0 has exited.

        A launcher ends all processes once the first one fails.
        """
        first = (str(error) or type(error).__name__).splitlines()[0]
        what = "stopped" if isinstance(error, KeyboardInterrupt | SystemExit) else "failed"
        _show(f"{self.name}: the job has {what}, see rank 0: {first}")
        self.participation.outlive_driver(LAST_SECONDS)


def _raised_by_rank_0(error: BaseException, told: Told) -> BaseException:
    """Mark an error to be shown in one line if it ends this process, and return it."""
    if not getattr(sys.excepthook, "of_rank_0", False):
        sys.excepthook = _hook(sys.excepthook)
    error.told_by_rank_0 = told  # type: ignore[attr-defined]
    return error


def _hook(before: Callable[..., Any]) -> Callable[..., Any]:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        told: Told | None = getattr(error, "told_by_rank_0", None)
        if told is None:
            before(kind, error, trace)
        else:
            told.end(error)

    hook.of_rank_0 = True  # type: ignore[attr-defined]
    return hook
