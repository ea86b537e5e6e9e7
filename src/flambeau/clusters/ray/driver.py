"""A process on the head node that drives a job for a Ray client (`ray://`).

Workers connect to the process that drives their job, and cannot reach a client. So a client starts
a `DriverActor`, which starts a separate process, as `ray job submit` would: it has a main thread
for signals, and is a Ray program with its own actors. The client polls the actor for the output of
the process, and copies files there and back.
"""

import fcntl
import os
import pty
import queue
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from flambeau.errors import MissingDependencyError
from flambeau.version import __version__

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 16
#: How long a process may take to save its run after a request to stop.
STOP_SECONDS = 60.0
#: The file with the outcome of a call, in its own folder, until the client has read it.
OUTCOME = "outcome"
#: A client that has not read the outcome by then counts as lost.
OUTCOME_SECONDS = 86400.0


@dataclass(frozen=True)
class FileInfo:
    """A file below a folder; if path, size and time are equal, it is not copied again."""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class Output:
    """The output of a process since the last poll; `exit_code` once the process has ended."""

    chunks: Sequence[tuple[int, bytes]]
    exit_code: int | None


def list_files(folder: Path) -> list[FileInfo]:
    """Return all files below a folder, except those that belong to one machine only."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != ".lock":
            status = path.stat()
            name = path.relative_to(folder).as_posix()
            found.append(FileInfo(name, status.st_size, status.st_mtime_ns))
    return found


class DriverActor:
    """An actor that runs one call in a separate process, and keeps the folders of the call."""

    def __init__(self, version: str, folder: str | None) -> None:
        if version != __version__:
            raise MissingDependencyError(
                f"Flambeau {__version__} is installed on the head node of Ray, and {version} here: "
                "install the same version"
            )
        self._base = Path(folder).expanduser() if folder else Path.home() / ".flambeau" / "ray"
        _remove_old_outcomes(self._base)
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []

    def folder(self, name: str) -> str:
        """Return the path of a folder on this node, which may exist from an earlier call."""
        return str(self._base / name)

    def files(self, name: str) -> list[FileInfo]:
        """Return the files of a folder."""
        return list_files(self._base / name)

    def read(self, name: str, path: str, offset: int, size: int) -> bytes:
        """Return a part of a file."""
        with (self._base / name / path).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def write(self, name: str, path: str, offset: int, data: bytes, modified_ns: int) -> None:
        """Write a part of a file; parts must come in order."""
        target = self._base / name / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with target.open("ab" if offset else "wb") as file:
            file.write(data)
        os.utime(target, ns=(modified_ns, modified_ns))

    def remove(self, name: str) -> None:
        """Remove a folder (`CALL/NAME` or `CALL`), after the client has fetched its files."""
        shutil.rmtree(self._base / name.partition("/")[0], ignore_errors=True)

    def start(self, module: str, call: bytes, terminal: tuple[int, int] | None) -> None:
        """Start the process; with `terminal` (columns, lines), its standard error is a terminal."""
        errors, inside = _open_terminal(*terminal) if terminal else os.pipe()
        environment = {
            **os.environ,
            "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
            "PYTHONUNBUFFERED": "1",
            "TERM": os.environ.get("TERM", "xterm") if terminal else "dumb",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=inside,
            env=environment,
            start_new_session=True,
        )
        os.close(inside)
        assert process.stdin is not None
        assert process.stdout is not None
        for stream, descriptor in ((1, process.stdout.fileno()), (2, errors)):
            reader = threading.Thread(target=self._relay, args=(stream, descriptor), daemon=True)
            reader.start()
            self._readers.append(reader)
        process.stdin.write(_LENGTH.pack(len(call)) + call)
        process.stdin.flush()  # and stays open: the process ends with this one
        self._process = process

    def _relay(self, stream: int, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except OSError:  # how a terminal reports that no process has it open
                return
            if not data:
                return
            self._printed.put((stream, data))

    def poll(self, seconds: float) -> Output:
        """Return new output, after waiting at most `seconds` for some."""
        assert self._process is not None
        chunks = self._next_chunks(seconds)
        code = self._process.poll()
        if chunks or code is None:
            return Output(chunks, None)
        for reader in self._readers:
            reader.join(timeout=1.0)
        return Output((), code) if self._printed.empty() else Output((), None)

    def _next_chunks(self, seconds: float) -> list[tuple[int, bytes]]:
        try:
            chunks = [self._printed.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._printed.empty():
            chunks.append(self._printed.get())
        return chunks

    def send_signal(self, number: int) -> None:
        """Forward a signal that the client has received."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stop the process if it is still running, with time to save its run."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _remove_old_outcomes(base: Path) -> None:
    """Remove the outcomes of calls whose clients are lost."""
    for outcome in base.glob(f"*/{OUTCOME}"):
        if outcome.is_file() and time.time() - outcome.stat().st_mtime > OUTCOME_SECONDS:
            shutil.rmtree(outcome.parent, ignore_errors=True)


def _open_terminal(columns: int, lines: int) -> tuple[int, int]:
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    return outside, inside


def read_call(stream: Any) -> bytes:
    """Return the call that the actor has sent to its process."""
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
    data: bytes = stream.read(length)
    return data
