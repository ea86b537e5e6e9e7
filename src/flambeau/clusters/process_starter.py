"""Starters of roles: as forks of a fork server, or each in a new interpreter."""

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
#: A fork server that is stopped for longer than this counts as frozen, not as delayed.
FROZEN_SECONDS = 3.0
#: Memory of gradients and messages is reused instead of being returned after every step, and it is
#: in huge pages: a training step on a CPU is up to 10 % faster.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


def whole_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of a role, whose own variables (`own`) take precedence."""
    return {**KEEP_MEMORY, **os.environ, "PYTHONUNBUFFERED": "1", **own}


class Starter(ABC):
    """Base class of starters of roles."""

    @abstractmethod
    def start(self, lifeline: int, environment: dict[str, str]) -> "Process":
        """Start a role that holds the read end `lifeline` of its lifeline pipe."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Prepare what is possible before roles are known; return at once."""


@final
class Spawning(Starter):
    """A starter that runs every role in a new interpreter."""

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
    """A requested process, with the methods of `Popen` that an agent uses."""

    def __init__(self, fork_server: "ForkServer", stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._fork_server, self.stdout, self.stderr = fork_server, stdout, stderr
        #: None while the fork server is still loading.
        self.pid: int | None = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        self._fork_server.listen()
        return self.returncode


Process = Fork | subprocess.Popen[bytes]


@final
class ForkServer:
    """A client of a process that forks roles; its methods may be called from any thread.

    Agents with the same `folder` share the process; without one, only this agent's process uses it.
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
                # A server that outlives this process must not keep open a pipe that others read.
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
        """Fork a process that runs `module`, with the descriptors `fds` under the same numbers."""
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
        """Process the messages that the fork server has sent."""
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
        """Return whether the server is stopped (SIGSTOP) and stays so; block only while it is.

        A deadline for its reply could not distinguish this from loading libraries, which is slow.
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
            return False  # it has ended, which its connection shows

    def close(self) -> None:
        """End all forks of this process, and the fork server unless others use it."""
        with self._lock:
            if not self.lost:
                self._end()

    def _note(self, number: int, pid: int | None = None, code: int | None = None) -> None:
        fork = self._forks[number]
        fork.pid, fork.returncode = pid or fork.pid, code
        if code is not None:
            del self._forks[number]

    def _end(self) -> None:
        """End all forks, too: only the fork server can report their exit codes."""
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
    """Start a fork server to which only this process can connect."""
    ours, theirs = socket.socketpair()
    with theirs:
        start(theirs)
    return ours


def _shared(folder: str, start: Callable[[socket.socket], None]) -> socket.socket:
    """Connect to the fork server of this folder; start one if there is none."""
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
    """A starter that forks roles from a fork server, which later jobs of this process reuse."""

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
        """Start the fork server, which loads the libraries."""
        bound = self._launch.pinned and self._launch.affinity
        fork_server_for(self._launch, whole_environment(openmp.intel_environment(bound)))


_fork_servers: dict[object, ForkServer] = {}
#: Shared servers that this process started and no longer uses; they end when no process does.
_left: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


def fork_server_for(launch: Launch, environment: dict[str, str]) -> ForkServer:
    """Return a fork server that has loaded these modules with the same import-time variables."""
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
    """Return a fork server for this process alone, or one that is shared by its name."""
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
    """Return the starter for this system: libraries on other systems do not tolerate forks."""
    return Forking(launch) if sys.platform == "linux" else Spawning(launch)


atexit.register(close_fork_servers)
os.register_at_fork(after_in_child=_fork_servers.clear)
