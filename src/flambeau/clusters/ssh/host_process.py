"""The driver's process on a host: `python -m flambeau.clusters.ssh.host_process`, run by ssh.

It starts agents on requests from standard input. When that input ends, the connection or the
driver has ended: the process ends its agents and exits.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from ipaddress import ip_address
from typing import IO, final

import msgspec

from flambeau import version
from flambeau.clusters import outside_signals
from flambeau.clusters.child_process import read_message, write_message
from flambeau.clusters.interfaces import local_address
from flambeau.clusters.ssh.host_messages import (
    MARK,
    SILENCE_SECONDS,
    AgentExited,
    FromHost,
    Hello,
    Listen,
    Listening,
    Ping,
    Pong,
    Reach,
    Reached,
    StartAgent,
    ToHost,
    Unlisten,
)

AGENT_MODULE = "flambeau.clusters.agent"
#: How long agents, and an agent that counts as lost, may take to end before they are killed.
END_SECONDS, LOST_SECONDS = 20.0, 5.0
ERROR_LINES = 20
AT_ONCE = 64
#: An address on no network, to which nothing is sent: the default route leads there.
_ELSEWHERE = "192.0.2.1"


def hello() -> Hello:
    """Return the versions and addresses of this host."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = None
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    connection = os.environ.get("SSH_CONNECTION", "").split()
    client, _, server, _ = connection if len(connection) == 4 else [""] * 4
    return Hello(version.__version__, python, torch, client, server)


def own_address(server: str, driver: str | None) -> str:
    """Return the IPv4 address at which other hosts reach this one.

    That is the one that ssh connected to (`server`), unless it is loopback and `driver` is not.
    """
    if _is_ipv4(server) and (not _is_loopback(server) or driver is None or _is_loopback(driver)):
        return server
    try:
        return local_address(driver or _ELSEWHERE)
    except OSError:
        return "127.0.0.1"  # there is no network


def _is_ipv4(address: str) -> bool:
    try:
        return ip_address(address).version == 4
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


@final
class _Agent:
    """An agent process; the pipe to it is its lifeline."""

    def __init__(self, message: StartAgent) -> None:
        self._start = message.start
        self._process = subprocess.Popen(
            [sys.executable, "-m", AGENT_MODULE],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **message.environment},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._lifeline = self._process.stdin
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stderr,), daemon=True
        )
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):  # it has ended; `wait` returns why
            write_message(self._lifeline.fileno(), message.order)

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._errors.append(line.decode(errors="replace").rstrip())

    def wait(self) -> AgentExited:
        """Wait for the agent to exit; return the report for the driver."""
        code = self._process.wait()
        self._reader.join(timeout=1.0)  # its child processes may hold the pipe open
        return AgentExited(self._start, code, "\n".join(self._errors))

    def let_go(self) -> None:
        """Close the agent's lifeline, so that it ends its roles and exits."""
        with contextlib.suppress(BrokenPipeError):
            self._lifeline.close()

    def end(self, deadline: float) -> None:
        """Wait for the agent to exit until `deadline`, then kill it."""
        try:
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@final
class HostProcess:
    """The host's end of the connection to the driver, over two pipes."""

    def __init__(self, given: int, out: int) -> None:
        self._given, self._out = given, out
        self._writing = threading.Lock()
        self._agents: dict[int, _Agent] = {}
        self._listener: socket.socket | None = None

    def serve(self) -> None:
        """Handle the requests of the driver until the connection ends; then end all agents."""
        try:
            while (message := self._next()) is not None:
                self._obey(message)
        finally:
            self._end(list(self._agents.values()), END_SECONDS)

    def _next(self) -> ToHost | None:
        if not select.select([self._given], [], [], SILENCE_SECONDS)[0]:
            return None
        try:
            message: ToHost = msgspec.msgpack.decode(read_message(self._given), type=ToHost)
        except EOFError:
            return None
        return message

    def _obey(self, message: ToHost) -> None:
        if isinstance(message, StartAgent):
            self._start(message)
        elif isinstance(message, Ping):
            self._send(Pong())
        elif isinstance(message, Listen):
            self._send(self._listen(message))
        elif isinstance(message, Reach):
            self._send(Reached(reach(message.places, message.seconds)))
        elif isinstance(message, Unlisten) and self._listener is not None:
            self._listener.close()

    def _listen(self, message: Listen) -> Listening:
        host = own_address(hello().server, message.driver)
        self._listener = socket.create_server((host, 0), backlog=1024)
        return Listening(host, self._listener.getsockname()[1])

    def _start(self, message: StartAgent) -> None:
        if message.order.agent in self._agents:
            self._end([self._agents[message.order.agent]], LOST_SECONDS)
        agent = self._agents[message.order.agent] = _Agent(message)
        threading.Thread(target=lambda: self._send(agent.wait()), daemon=True).start()

    def _end(self, agents: Sequence[_Agent], seconds: float) -> None:
        for agent in agents:
            agent.let_go()
        deadline = time.monotonic() + seconds
        for agent in agents:
            agent.end(deadline)

    def _send(self, message: FromHost) -> None:
        with self._writing, contextlib.suppress(BrokenPipeError):  # standard input ends, too
            write_message(self._out, message)


def reach(places: Sequence[tuple[str, int]], seconds: float) -> list[str | None]:
    """Connect to all places at once; return why each connection failed, or None, in order."""

    def why(place: tuple[str, int]) -> str | None:
        try:
            socket.create_connection(place, timeout=seconds).close()
        except OSError as error:
            return error.strerror or str(error)
        return None

    if not places:
        return []
    with ThreadPoolExecutor(min(len(places), AT_ONCE)) as threads:
        return list(threads.map(why, places))


def main() -> None:
    """Run the host process."""
    outside_signals.withstand()
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep prints out of the messages
    os.write(out, b"\n" + MARK + msgspec.json.encode(hello()) + b"\n")
    HostProcess(sys.stdin.fileno(), out).serve()


if __name__ == "__main__":
    main()
