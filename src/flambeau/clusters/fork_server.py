"""A process with the libraries loaded, from which roles are forked: `-m ... FD FOLDER PRELOAD...`.

Importing torch takes seconds of CPU time; forking takes milliseconds, shares the memory, and lets a
lost role restart at once. The process receives requests over `FD`: the connection of its only
agent, or, with a `FOLDER`, the socket in it to which agents of the same user connect. It ends when
all agents have ended, `FLAMBEAU_KEEP_LOADED` seconds later if that is set, or after it has been
idle for a while. The roles of an agent end with the agent.
"""

import contextlib
import errno
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from flambeau.clusters import outside_signals
from flambeau.clusters.child_process import die_with_parent, read_exactly
from flambeau.clusters.open_files import raise_open_files
from flambeau.clusters.shared_socket import Entrance

#: Header of each request, sent with its descriptors: the length of the JSON that follows.
LENGTH = struct.Struct("<I")
MAX_DESCRIPTORS = 250
#: The process, user and group at the other end of a socket.
CREDENTIALS = struct.Struct("3i")
IDLE_SECONDS = 300.0
#: Set by users: seconds for which to stay loaded for the next command of the same user.
KEEP_LOADED = "FLAMBEAU_KEEP_LOADED"
#: Further connections are closed at once, so that descriptors are left for roles.
MOST_AGENTS = 250
#: Prefixes of the environment variables that libraries read when they are loaded.
IMPORT_TIME = (
    "ATEN_",
    "GLIBC_",
    "GOMP_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "NUMBA_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TORCH",
)


@dataclass(frozen=True)
class Request:
    """Request to fork a role: everything that a new process would be started with.

    `received` are the descriptors of its lifeline pipe, standard output and standard error, and of
    the files that it will find under the numbers `fds`.
    """

    number: int
    module: str
    environment: dict[str, str]
    folder: str
    fds: list[int]
    received: list[int]


class Forker:
    """A server that forks on request and reports the exit codes of its forks."""

    def __init__(self, entrance: Entrance | None, agent: socket.socket | None) -> None:
        """Serve all agents that connect to the entrance, or a single agent."""
        self._entrance = entrance
        self._keep_seconds = kept_seconds() if entrance is not None else 0.0
        self._forks: dict[socket.socket, dict[int, int]] = {} if agent is None else {agent: {}}
        #: Closed for a moment when no other descriptor is left.
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._ended, wake = socket.socketpair()
        wake.setblocking(False)
        self._wake = wake
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Request | None:
        """Serve agents. Return the request in each fork, and None in the server at its end."""
        try:
            return self._serve()
        finally:
            _ignore_ended_forks()  # those just killed, if their agent has ended

    def _serve(self) -> Request | None:
        with selectors.DefaultSelector() as selector:
            for source in (*self._forks, self._ended):
                selector.register(source, selectors.EVENT_READ)
            if self._entrance is not None:
                selector.register(self._entrance.listener, selectors.EVENT_READ)
            while True:
                patience = IDLE_SECONDS if self._forks else self._keep_seconds
                ready = [key.fileobj for key, _ in selector.select(patience or IDLE_SECONDS)]
                if not ready and not any(self._forks.values()) and self._close():
                    return None
                if self._ended in ready:
                    self._ended.recv(4096)
                    self._reap()
                if self._entrance is not None and self._entrance.listener in ready:
                    self._admit(self._entrance.listener, selector)
                for agent in self._forks.keys() & set(ready):
                    request = self._receive(agent)
                    if request is None:
                        selector.unregister(agent)
                        self._forget(agent)
                        unused = not self._forks and not self._keep_seconds
                        if unused and self._close():
                            return None
                    elif self._fork(request, agent):
                        return request

    def _close(self) -> bool:
        """Close the entrance, if there is one; return whether no agent can connect any more."""
        return self._entrance is None or self._entrance.close()

    def _admit(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        """Accept an agent of this user, up to the limit. Nothing is sent to others."""
        try:
            agent, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._turn_away(listener)
            return  # or the client has already disconnected
        if len(self._forks) >= MOST_AGENTS or peer_of(agent)[1] != os.getuid():
            agent.close()
            return
        selector.register(agent, selectors.EVENT_READ)
        self._forks[agent] = {}

    def _turn_away(self, listener: socket.socket) -> None:
        """Close a connection for which no descriptor is left; otherwise it would wait forever."""
        os.close(self._spare)
        with contextlib.suppress(OSError):  # the client has already disconnected
            listener.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def _receive(self, agent: socket.socket) -> Request | None:
        """Return the request of an agent; None if it has disconnected."""
        try:
            header, received, _, _ = socket.recv_fds(agent, LENGTH.size, MAX_DESCRIPTORS)
            if len(header) < LENGTH.size:
                return None
            data = read_exactly(agent.fileno(), *LENGTH.unpack(header))
        except (ConnectionError, EOFError):
            return None
        return Request(**json.loads(data), received=received)

    def _fork(self, request: Request, agent: socket.socket) -> bool:
        """Fork a process; return True in the fork and False in the server."""
        pid = os.fork()
        if pid == 0:
            _ignore_ended_forks()
            if self._entrance is not None:
                self._entrance.listener.close()
            for ours in (self._ended, self._wake, *self._forks):
                ours.close()
            os.close(self._spare)
            return True
        os.setpgid(pid, pid)  # the fork does the same, whichever is first
        self._forks[agent][pid] = request.number
        for descriptor in request.received:
            os.close(descriptor)
        tell(agent, number=request.number, pid=pid)
        return False

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for agent, forks in self._forks.items():
                if pid in forks:
                    tell(agent, number=forks.pop(pid), code=os.waitstatus_to_exitcode(status))

    def _forget(self, agent: socket.socket) -> None:
        """Kill the remaining roles of an agent that has disconnected."""
        for pid in self._forks.pop(agent):
            os.killpg(pid, signal.SIGKILL)
        agent.close()


def kept_seconds() -> float:
    """Return the seconds that an unused fork server stays; 0 if the setting is not a number."""
    try:
        return max(0.0, float(os.environ.get(KEEP_LOADED, "0")))
    except ValueError:
        return 0.0


def _ignore_ended_forks() -> None:
    """Stop handling SIGCHLD, before the descriptor to which it would be written is closed."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def tell(agent: socket.socket, **news: int) -> None:
    """Report the process id or exit code of a fork to an agent, which may have ended."""
    with contextlib.suppress(ConnectionError):
        agent.sendall(json.dumps(news).encode() + b"\n")


def peer_of(connection: socket.socket) -> tuple[int, int, int]:
    """Return the ids of the process, user and group at the other end."""
    size = CREDENTIALS.size
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, group = CREDENTIALS.unpack(found)
    return process, user, group


def become(request: Request) -> None:
    """Turn a fork into what `python -m module` would be."""
    os.setpgid(0, 0)
    die_with_parent()
    lifeline = _arrange(request)
    os.chdir(request.folder)
    if not sys.flags.safe_path:
        sys.path[0] = request.folder
    os.environ.clear()
    os.environ.update(request.environment)
    _start_anew(request.environment.get("OMP_NUM_THREADS"))
    sys.argv = [request.module, str(lifeline)]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _arrange(request: Request) -> int:
    """Give the descriptors their numbers; return that of the lifeline pipe."""
    # Out of the way first: a received descriptor may have the number that another one needs.
    above = max([2, *request.fds, *request.received]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in request.received]
    for descriptor in request.received:
        os.close(descriptor)
    lifeline, *others = moved
    for source, target in zip(others, [1, 2, *request.fds], strict=True):
        os.dup2(source, target)
        os.close(source)
    return lifeline


def _start_anew(threads: str | None) -> None:
    """Reset what libraries choose when they are loaded, which all forks would share."""
    tempfile.tempdir = None
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None and threads is not None:
        torch.set_num_threads(int(threads.split(",")[0]))  # OpenMP takes a number for each level


def load(modules: list[str]) -> None:
    """Import modules, skipping failures: a role that needs one of those reports the error."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 - raised again in the role, which reports it
            continue
    gc.collect()
    gc.freeze()


def main(descriptor: int, folder: str, *preload: str) -> None:
    """Serve agents; in a fork, run the role."""
    outside_signals.withstand()
    os.set_inheritable(descriptor, False)
    raise_open_files()
    with socket.socket(fileno=descriptor) as given:
        entrance = Entrance(given, folder) if folder else None
        load(list(preload))
        request = Forker(entrance, None if entrance else given).serve()
    if request is not None:
        become(request)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
