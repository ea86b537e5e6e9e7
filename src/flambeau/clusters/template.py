"""A process with the libraries loaded, from which roles are forked: `-m ... FD MODULE PRELOAD...`.

Importing torch takes seconds of a core; forking takes milliseconds, shares the memory, and lets a
lost role come back at once. The process takes requests from its agent over a socket, and ends when
that ends.
"""

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
from dataclasses import dataclass
from typing import Any

from flambeau.clusters.child import die_with_parent, read_exactly

#: Before each request, together with its descriptors: the length of the JSON that follows.
LENGTH = struct.Struct("<I")
DESCRIPTORS = 3


@dataclass(frozen=True)
class Request:
    """What a role is started with: its number, additions to the environment, and pipes."""

    number: int
    environment: dict[str, str]
    life: int
    stdout: int
    stderr: int


class Template:
    """Forks on request, and says what became of the forks."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._numbers: dict[int, int] = {}
        self._ended, wake = socket.socketpair()
        wake.setblocking(False)
        self._wake = wake
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Request | None:
        """In a fork: what it was asked to be. None, in the template, when the agent has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._ended in ready:
                    self._ended.recv(4096)
                    self._reap()
                if self._control in ready:
                    request = self._receive()
                    if request is None:
                        return None
                    if self._fork(request):
                        return request

    def _receive(self) -> Request | None:
        header, descriptors, _, _ = socket.recv_fds(self._control, LENGTH.size, DESCRIPTORS)
        if len(header) < LENGTH.size:
            return None
        data = read_exactly(self._control.fileno(), *LENGTH.unpack(header))
        life, stdout, stderr = descriptors
        return Request(**json.loads(data), life=life, stdout=stdout, stderr=stderr)

    def _fork(self, request: Request) -> bool:
        """Whether this is the fork."""
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for ours in (self._control, self._ended, self._wake):
                ours.close()
            return True
        os.setpgid(pid, pid)  # as the fork does, whoever comes first
        self._numbers[pid] = request.number
        for pipe in (request.life, request.stdout, request.stderr):
            os.close(pipe)
        self._tell(number=request.number, pid=pid)
        return False

    def _reap(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._tell(number=self._numbers.pop(pid), code=os.waitstatus_to_exitcode(status))

    def _tell(self, **news: int) -> None:
        self._control.sendall(json.dumps(news).encode() + b"\n")


def become(request: Request, module: str) -> None:
    """Turn a fork into what `python -m module` would be."""
    os.setpgid(0, 0)
    die_with_parent()
    os.dup2(request.stdout, 1)
    os.dup2(request.stderr, 2)
    os.close(request.stdout)
    os.close(request.stderr)
    os.environ.update(request.environment)
    _start_anew(int(request.environment["OMP_NUM_THREADS"]))
    sys.argv = [module, str(request.life)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _start_anew(threads: int) -> None:
    """What libraries decide when they are loaded, and would be the same in all forks."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def load(modules: list[str]) -> None:
    """Import what can be; a role that needs what cannot will say so itself."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 - raised again in the role, which reports it
            continue
    gc.collect()
    gc.freeze()


def main(control: int, module: str, *preload: str) -> None:
    """Serve the agent; in a fork, run the role."""
    die_with_parent()
    os.set_inheritable(control, False)
    with socket.socket(fileno=control) as agent:
        load(list(preload))
        request = Template(agent).serve()
    if request is not None:
        become(request, module)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
