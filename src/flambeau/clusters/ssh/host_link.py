"""The driver's connection to its process on a host."""

import contextlib
import queue
import subprocess
import threading
import time
from collections import deque
from typing import Any, TypeVar, final

import msgspec

from flambeau.clusters.child_process import read_message, write_message
from flambeau.clusters.ssh.connection import SshProgram, hanging
from flambeau.clusters.ssh.host_messages import (
    MARK,
    AgentExited,
    Beat,
    FromHost,
    Hello,
    Ping,
    Pong,
    ToHost,
)
from flambeau.clusters.ssh.problems import Problem, ProblemKind, last_line
from flambeau.clusters.ssh.requirements import lacking, mismatch, remote_command, unexpected
from flambeau.errors import MessagingError

HOST_MODULE = "flambeau.clusters.ssh.host_process"
#: How long a host may take to reply.
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 30.0
ERROR_LINES = 50
#: The most bytes that startup files of a shell may write before the hello.
_MOST_NOISE = 1 << 20

Reply = TypeVar("Reply")
#: Reports of links: an agent that has exited, or the end of the link (None).
News = queue.SimpleQueue[tuple["HostLink", AgentExited | None]]


class HostLostError(MessagingError):
    """The error for a connection to a host that has ended, or over which no reply comes."""


@final
class HostLink:
    """One ssh connection, with a process of Flambeau at the other end.

    Any thread may send messages; only one thread at a time may call `ask`. Exits of agents on the
    host go into the queue `news`, and so does the end of the connection (None).
    """

    def __init__(self, ssh: SshProgram, host: str, python: str, folder: str, news: News) -> None:
        self.host, self._ssh, self._python = host, ssh, python
        self.hello: Hello | None = None
        self._news = news
        self._replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._greeted = threading.Event()
        self._ended = threading.Event()
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._sending = threading.Lock()
        self._process = subprocess.Popen(
            ssh.command(
                host,
                remote_command(python, folder, HOST_MODULE),
                *("-o", "ClearAllForwardings=yes"),  # the user's config may define some
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must only reach the driver
        )
        self._threads = [
            threading.Thread(target=work, name=f"flambeau-ssh-{host}", daemon=True)
            for work in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()

    # Its start

    def greet(self, seconds: float) -> Problem | None:
        """Wait at most `seconds` for the hello; return the problem if the host cannot be used."""
        name, shown = self.host, self._ssh.shown
        if not self._greeted.wait(seconds):
            self.close(0)
            return hanging(self._ssh, name, seconds)
        if self.hello is not None:
            return mismatch(name, shown, self._python, self.hello)
        code = self._process.wait(timeout=CLOSE_SECONDS)
        self._threads[1].join(timeout=CLOSE_SECONDS)
        errors = "\n".join(self._errors)
        problem = lacking(name, shown, self._python, errors)
        problem = problem or self._ssh.explain(name, code, errors)
        return problem or unexpected(name, shown, errors)

    # Messages

    def send(self, message: ToHost) -> None:
        """Send a message; raise `HostLostError` if the connection has ended."""
        with self._sending:
            self._write(message)

    def beat(self) -> None:
        """Send the host a heartbeat, unless another thread is sending a message."""
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(HostLostError):  # reported in `news`
                    self._write(Beat())
            finally:
                self._sending.release()

    def ask(self, message: ToHost, reply: type[Reply], seconds: float = ANSWER_SECONDS) -> Reply:
        """Send a message and return the reply; raise `HostLostError` if there is none in time."""
        self.send(message)
        deadline = time.monotonic() + seconds
        while not self.ended:
            try:
                found = self._replies.get(timeout=min(0.2, max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    text = f"{self.host}: no answer within {seconds:g} s"
                    raise HostLostError(text) from None
                continue
            if isinstance(found, reply):
                return found
        raise HostLostError(f"{self.host}: {self.reason}")

    def answers(self) -> bool:
        """Return whether the host replies."""
        try:
            self.ask(Ping(), Pong)
        except HostLostError:
            return False
        return True

    def _write(self, message: ToHost) -> None:
        assert self._process.stdin is not None
        try:
            write_message(self._process.stdin.fileno(), message)
        except (OSError, ValueError):  # it has ended, or was closed
            raise HostLostError(f"{self.host}: {self.reason}") from None

    # Its end

    @property
    def ended(self) -> bool:
        """Return whether the connection has ended."""
        return self._ended.is_set()

    @property
    def reason(self) -> str:
        """Return why the connection has ended."""
        errors = "\n".join(self._errors)
        problem = self._ssh.explain(self.host, self._process.poll() or 0, errors)
        if problem is not None and problem.kind is not ProblemKind.OTHER:
            return f"its ssh connection has ended: {problem.text}"
        said = last_line(errors)
        return f"its ssh connection has ended{f' ({said})' if said else ''}"

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close the connection, which ends all that was started on the host."""
        assert self._process.stdin is not None
        if not self._sending.acquire(timeout=1.0):
            self._process.kill()  # which ends a write that a lost host blocks
            self._sending.acquire()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        finally:
            self._sending.release()
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=CLOSE_SECONDS)

    # The threads

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            try:
                self.hello = _read_hello(stream)
                self._greeted.set()
                while True:
                    self._take(msgspec.msgpack.decode(read_message(stream.fileno()), type=FromHost))
            except (EOFError, msgspec.DecodeError) as error:
                if not isinstance(error, EOFError):
                    self._errors.append(f"what it sends is no message of Flambeau: {error}")
            finally:
                self._ended.set()
                self._greeted.set()
                self._news.put((self, None))

    def _take(self, message: FromHost) -> None:
        if isinstance(message, AgentExited):
            self._news.put((self, message))
        else:
            self._replies.put(message)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._errors.append(line.decode(errors="replace").rstrip())


def _read_hello(stream: Any) -> Hello:
    """Return the hello, skipping whatever was written before it."""
    noise = 0
    while noise < _MOST_NOISE:
        line = stream.raw.readline(_MOST_NOISE)
        if not line:
            raise EOFError("no hello")
        if line.startswith(MARK):
            return msgspec.json.decode(line[len(MARK) :], type=Hello)
        noise += len(line)
    raise msgspec.DecodeError("it begins with more than a login should write")
