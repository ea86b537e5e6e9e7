"""How an agent starts processes: forked from a template, or each on its own."""

import json
import os
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from signal import SIGKILL
from typing import IO, final

from flambeau.clusters.base import Launch
from flambeau.clusters.template import LENGTH

TEMPLATE_MODULE = "flambeau.clusters.template"


class Starter(ABC):
    """Starts roles."""

    @abstractmethod
    def start(self, life: int, environment: dict[str, str]) -> "Process":
        """A new role that holds the read end `life` of its thread of life."""

    @abstractmethod
    def close(self) -> None:
        """End what was needed to start roles; they have ended."""


@final
class Spawning(Starter):
    """Every role is a new interpreter."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def start(self, life: int, environment: dict[str, str]) -> "Process":
        """See `Starter`."""
        return subprocess.Popen(
            [self._launch.python, "-m", self._launch.module, str(life)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(life, *self._launch.fds),
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def close(self) -> None:
        """See `Starter`."""


@final
class Fork:
    """A process that was asked for, with the methods of `Popen` that an agent uses."""

    def __init__(self, forks: "Forking", stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._forks, self.stdout, self.stderr = forks, stdout, stderr
        #: None while the template is still loading.
        self.pid: int | None = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        self._forks.listen()
        return self.returncode


Process = Fork | subprocess.Popen[bytes]


@final
class Forking(Starter):
    """Has roles forked from a template, which it starts when it is first needed, or is gone."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._template: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._forks: list[Fork] = []
        self._heard = b""

    def start(self, life: int, environment: dict[str, str]) -> Fork:
        """See `Starter`."""
        self.listen()
        control = self._control or self._start_template(environment)
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        fork = Fork(self, os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb"))
        request = {"number": len(self._forks), "environment": environment}
        data = json.dumps(request).encode()
        self._forks.append(fork)
        socket.send_fds(control, [LENGTH.pack(len(data))], [life, stdout_end, stderr_end])
        control.sendall(data)
        os.close(stdout_end)
        os.close(stderr_end)
        return fork

    def listen(self) -> None:
        """Take in what the template has said."""
        while self._control is not None:
            try:
                data = self._control.recv(65_536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not data:
                self._lost()
                return
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                news = json.loads(line)
                fork = self._forks[news["number"]]
                fork.pid = news.get("pid", fork.pid)
                fork.returncode = news.get("code")

    def close(self) -> None:
        """End the template."""
        if self._control is not None:
            self._lost()

    def _start_template(self, environment: dict[str, str]) -> socket.socket:
        launch = self._launch
        self._control, theirs = socket.socketpair()
        with theirs:
            what = [str(theirs.fileno()), launch.module, *launch.preload]
            self._template = subprocess.Popen(
                [launch.python, "-m", TEMPLATE_MODULE, *what],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *launch.fds),
                env={**os.environ, **environment},
                start_new_session=True,
            )
        return self._control

    def _lost(self) -> None:
        """Without the template nobody knows how its forks end, so they have ended with it."""
        assert self._control is not None
        assert self._template is not None
        self._control.close()
        self._template.kill()
        self._template.wait(timeout=30)
        self._control, self._heard = None, b""
        for fork in self._forks:
            if fork.returncode is None:
                fork.returncode = -SIGKILL
        self._forks = []


def make_starter(launch: Launch) -> Starter:
    """What suits this machine: libraries of other systems do not bear to be forked."""
    return Forking(launch) if sys.platform == "linux" else Spawning(launch)
