"""How an agent starts processes: forked from a fork server, or each on its own."""

import atexit
import contextlib
import hashlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL
from typing import IO, final

from flambeau.clusters import shared_socket
from flambeau.clusters.affinity import openmp
from flambeau.clusters.base import Launch
from flambeau.clusters.fork_server import IMPORT_TIME, LENGTH, kept_seconds, peer_of

FORK_SERVER_MODULE = "flambeau.clusters.fork_server"
#: A fork server that is stopped for longer than this is frozen, and not only held up.
FROZEN_SECONDS = 3.0
#: Memory of gradients and messages is used again instead of being returned after every step, and
#: is in huge pages: a training step on a CPU is up to a tenth faster.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


def whole_environment(own: Mapping[str, str]) -> dict[str, str]:
    """All of a role's environment, of which `own` is its own."""
    return {**KEEP_MEMORY, **os.environ, "PYTHONUNBUFFERED": "1", **own}


class Starter(ABC):
    """Starts roles."""

    @abstractmethod
    def start(self, lifeline: int, environment: dict[str, str]) -> "Process":
        """A new role that holds the read end `life` of its lifeline pipe."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Do what can be done before roles are known; returns at once."""


@final
class Spawning(Starter):
    """Every role is a new interpreter."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def start(self, lifeline: int, environment: dict[str, str]) -> "Process":
        """See `Starter`."""
        return subprocess.Popen(
            [self._launch.python, "-m", self._launch.module, str(lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(lifeline, *self._launch.fds),
            env=whole_environment(environment),
            start_new_session=True,
        )


@final
class Fork:
    """A process that was asked for, with the methods of `Popen` that an agent uses."""

    def __init__(self, fork_server: "ForkServer", stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._fork_server, self.stdout, self.stderr = fork_server, stdout, stderr
        #: None while the fork server is still loading.
        self.pid: int | None = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        self._fork_server.listen()
        return self.returncode


Process = Fork | subprocess.Popen[bytes]


@final
class ForkServer:
    """A process that forks; all its methods may be called from any thread.

    Agents that know it by the same `folder` share it; without one, it is for this process alone.
    """

    def __init__(
        self,
        command: list[str],
        preload: tuple[str, ...],
        environment: dict[str, str],
        folder: str | None,
    ) -> None:
        self._lock = threading.Lock()
        self._forks: dict[int, Fork] = {}
        self._numbers = itertools.count()
        self._heard = b""
        self.lost = False
        self._shared = folder is not None
        self._process: subprocess.Popen[bytes] | None = None

        def start(given: socket.socket) -> None:
            self._process = subprocess.Popen(
                [*command, str(given.fileno()), folder or "", *preload],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # One that outlives this process must not keep a pipe open that others read.
                stderr=subprocess.DEVNULL if folder and kept_seconds() else None,
                pass_fds=(given.fileno(),),
                env=environment,
                start_new_session=True,
            )

        self._control = _own(start) if folder is None else _shared(folder, start)
        found = peer_of(self._control)[0] if self._process is None else self._process.pid
        self._stat = Path(f"/proc/{found}/stat")

    def fork(
        self, module: str, lifeline: int, fds: tuple[int, ...], environment: dict[str, str]
    ) -> Fork:
        """A process that runs `module`, with the descriptors `fds` under the same numbers."""
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        fork = Fork(self, os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb"))
        try:
            with self._lock:
                number = next(self._numbers)
                request = {
                    "number": number,
                    "module": module,
                    "environment": environment,
                    "folder": os.getcwd(),
                    "fds": fds,
                }
                data = json.dumps(request).encode()
                self._forks[number] = fork
                pipes = [lifeline, stdout_end, stderr_end]
                socket.send_fds(self._control, [LENGTH.pack(len(data))], [*pipes, *fds])
                self._control.sendall(data)
        finally:
            os.close(stdout_end)
            os.close(stderr_end)
        return fork

    def listen(self) -> None:
        """Take in what the fork server has said."""
        with self._lock:
            while not self.lost:
                try:
                    data = self._control.recv(65_536, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                except ConnectionError:
                    data = b""
                *lines, self._heard = (self._heard + data).split(b"\n")
                for line in lines:
                    self._note(**json.loads(line))
                if not data:
                    self._end()

    def is_frozen(self) -> bool:
        """Return whether it is stopped (SIGSTOP) and stays so; takes a while only if it is.

        No deadline for an answer could tell this from loading libraries, which takes its time.
        """
        deadline = time.monotonic() + FROZEN_SECONDS
        while self._is_stopped():
            if time.monotonic() > deadline:
                return True
            time.sleep(0.05)
        return False

    def _is_stopped(self) -> bool:
        try:
            return self._stat.read_text().rpartition(")")[2].split()[0] in "Tt"
        except (FileNotFoundError, ProcessLookupError):
            return False  # it has ended, which its connection says

    def close(self) -> None:
        """End all that was forked for this process, and the fork server, unless others use it."""
        with self._lock:
            if not self.lost:
                self._end()

    def _note(self, number: int, pid: int | None = None, code: int | None = None) -> None:
        fork = self._forks[number]
        fork.pid, fork.returncode = pid or fork.pid, code
        if code is not None:
            del self._forks[number]

    def _end(self) -> None:
        """Without the fork server nobody knows how its forks end, so they end with it."""
        self.lost = True
        self._control.close()
        if self._process is not None and self._shared:
            _left.append(self._process)
        elif self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
        for fork in self._forks.values():
            fork.returncode = -SIGKILL


def _own(start: Callable[[socket.socket], None]) -> socket.socket:
    """Have a fork server started for this process alone: nobody else can reach it."""
    ours, theirs = socket.socketpair()
    with theirs:
        start(theirs)
    return ours


def _shared(folder: str, start: Callable[[socket.socket], None]) -> socket.socket:
    """Connect to the fork server of this folder, which is started if there is none."""
    with shared_socket.held(folder) as descriptor:
        found = shared_socket.connect(descriptor)
        if found is None:
            with shared_socket.listen(descriptor) as listener:
                start(listener)
                found = shared_socket.connect(descriptor)
            assert found is not None, "this process listens itself"
    return found


@final
class Forking(Starter):
    """Has roles forked from a fork server that later jobs of this process use again."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def start(self, lifeline: int, environment: dict[str, str]) -> Fork:
        """See `Starter`."""
        launch, whole = self._launch, whole_environment(environment)
        fork_server = fork_server_for(launch, whole)
        try:
            return fork_server.fork(launch.module, lifeline, launch.fds, whole)
        except OSError:
            fork_server.close()  # it has ended meanwhile
            return fork_server_for(launch, whole).fork(launch.module, lifeline, launch.fds, whole)

    def prepare(self) -> None:
        """Have the libraries loaded."""
        bound = self._launch.pinned and self._launch.affinity
        fork_server_for(self._launch, whole_environment(openmp.intel_environment(bound)))


_fork_servers: dict[object, ForkServer] = {}
#: Shared ones that this process has started and uses no more; they end when nobody does.
_left: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


def fork_server_for(launch: Launch, environment: dict[str, str]) -> ForkServer:
    """The fork server with these modules, and what libraries read when they are loaded as here."""
    read = sorted(item for item in environment.items() if item[0].startswith(IMPORT_TIME))
    siblings = "kept loaded" if kept_seconds() else launch.siblings
    key = repr((launch.python, launch.preload, read, siblings))
    with _lock:
        _reap()
        fork_server = _fork_servers.get(key)
        if fork_server is not None:
            fork_server.listen()
            if fork_server.is_frozen():
                fork_server.close()
        if fork_server is None or fork_server.lost:
            name = hashlib.sha256(f"{os.getuid()} {key}".encode()).hexdigest() if siblings else ""
            fork_server = _fork_servers[key] = _new_fork_server(launch, environment, name)
        return fork_server


def _new_fork_server(launch: Launch, environment: dict[str, str], name: str) -> ForkServer:
    """Return one of this process alone, or one that others find by its name, too."""
    command = [launch.python, "-m", FORK_SERVER_MODULE]
    if name:
        runtime = os.environ.get("XDG_RUNTIME_DIR") if kept_seconds() else None
        parent = runtime or tempfile.gettempdir()
        folder = os.path.join(parent, f"flambeau-fork-server-{name[:32]}")
        # Another user may have taken the name.
        with contextlib.suppress(PermissionError):
            fork_server = ForkServer(command, launch.preload, environment, folder)
            if not fork_server.is_frozen():
                return fork_server
            fork_server.close()
    return ForkServer(command, launch.preload, environment, None)


def close_fork_servers() -> None:
    """End all fork servers of this process."""
    with _lock:
        for fork_server in _fork_servers.values():
            fork_server.close()
        _fork_servers.clear()
        _reap()


def _reap() -> None:
    _left[:] = [process for process in _left if process.poll() is None]


def make_starter(launch: Launch) -> Starter:
    """What suits this machine: libraries of other systems do not bear to be forked."""
    return Forking(launch) if sys.platform == "linux" else Spawning(launch)


atexit.register(close_fork_servers)
os.register_at_fork(after_in_child=_fork_servers.clear)
