"""Copies of a folder on a host: made by rsync, which sends what differs, or from a tar stream."""

import os
import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, final

from flambeau.clusters.ssh.connection import SshProgram, ask
from flambeau.clusters.ssh.problems import Problem, ProblemKind
from flambeau.clusters.ssh.project_files import MARKER, ProjectFiles

#: Timeout, in seconds, of a command that creates or lists a folder.
_SECONDS = 60.0
_NO_ENVIRONMENT = 119
#: The last file of an archive that replaces a folder: a truncated archive does not have it.
_COMPLETE = ".flambeau-complete"
_PIECE = 1 << 20

Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True)
class Copied:
    """The numbers of files and bytes that were sent, and the seconds that it took."""

    files: int
    bytes: int
    seconds: float


@final
class CopyError(Exception):
    """The error of a copy that failed, with its problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


@final
class Transfers:
    """The running programs that copy; any thread can stop them together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @contextmanager
    def running(self, command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program, and wait for its exit; an exception kills it."""
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(command, **options)
            self._running.add(process)
        try:
            with process:
                try:
                    yield process
                except BaseException:
                    process.kill()
                    raise
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """Kill all programs, and prevent new ones."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


@final
@dataclass(frozen=True)
class Copier:
    """A copier of a folder to hosts.

    With `mirror`, the copy has no other files than the folder; it may only replace a virtual
    environment.
    """

    ssh: SshProgram
    transfers: Transfers
    files: ProjectFiles
    target: str
    mirror: bool = False

    def prepare(self, host: str, marker: str) -> None:
        """Create the folder on the host, with an empty file `marker`."""
        target = shlex.quote(self.target)
        script = f"mkdir -p -- {target}"
        if self.mirror:
            others = f"ls -A -- {target} | grep -v '^{MARKER}'"
            script += (
                f' && {{ [ -z "$({others})" ] || [ -f {target}/pyvenv.cfg ]'
                f" || exit {_NO_ENVIRONMENT}; }}"
            )
        script += f" && : >{target}/{marker}"
        answer = ask(self.ssh, host, ["sh", "-c", script], seconds=_SECONDS)
        if answer.problem is not None:
            raise CopyError(answer.problem)
        if answer.code == _NO_ENVIRONMENT:
            text = f"{self.target} is there, but is no virtual environment, and is not replaced"
            raise CopyError(self._problem(host, text, f"ls -la {target}", "and remove it"))
        if answer.code != 0:
            raise CopyError(self._failed(host, answer.errors))

    def rsync(self, host: str, progress: Progress, *, dry_run: bool = False) -> Copied:
        """Send what differs, with rsync."""
        began = time.monotonic()
        what = ["--delete", f"--exclude=/{MARKER}*"]
        if not self.mirror:
            what = ["--from0", "--files-from=-"]
        command = [
            *["rsync", "-a", "-s", "--no-owner", "--no-group", "--stats", "--info=progress2"],
            *(["--dry-run"] if dry_run else []),
            *["-e", shlex.join([*self.ssh.transport, "-T"]), *what, "--"],
            *[f"{self.files.folder}/", f"{_in_brackets(host)}:{self.target}/"],
        ]
        with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as errors:
            names.write(b"".join(os.fsencode(path) + b"\0" for path in self.files.paths))
            names.seek(0)
            options = {"stdin": names, "stderr": errors, "env": {**os.environ, "LC_ALL": "C"}}
            with self.transfers.running(command, stdout=subprocess.PIPE, **options) as process:
                assert process.stdout is not None
                files, size = _follow(process.stdout, progress)
            if process.returncode != 0:
                raise CopyError(self._failed(host, _text(errors)))
        return Copied(files, size, time.monotonic() - began)

    def tar(self, host: str, progress: Progress) -> Copied:
        """Send everything, as a tar stream."""
        began = time.monotonic()
        with tempfile.TemporaryFile() as errors:
            command = self.ssh.command(host, ["sh", "-c", self._unpacking()])
            options = {"stdout": subprocess.DEVNULL, "stderr": errors}
            with self.transfers.running(command, stdin=subprocess.PIPE, **options) as process:
                assert process.stdin is not None
                try:
                    self._pack(process.stdin, progress)
                    process.stdin.close()
                except BrokenPipeError:
                    # The exit code shows why the other side has ended.
                    process.kill()
                    with suppress(BrokenPipeError):
                        process.stdin.close()
            if process.returncode != 0:
                raise CopyError(self._failed(host, _text(errors)))
        return Copied(self.files.files, self.files.bytes, time.monotonic() - began)

    def _unpacking(self) -> str:
        """Return the script that unpacks on the host; a mirror replaces the folder at the end."""
        target = shlex.quote(self.target)
        if not self.mirror:
            return f"exec tar -xpof - -C {target}"
        new = shlex.quote(f"{self.target}.flambeau-new")
        return (
            f"rm -rf -- {new} && mkdir -- {new} && tar -xpof - -C {new} && rm -- {new}/{_COMPLETE} "
            f"&& rm -rf -- {target} && mv -- {new} {target}"
        )

    def _pack(self, out: IO[bytes], progress: Progress) -> None:
        sent = 0
        with tarfile.open(fileobj=out, mode="w|", bufsize=_PIECE) as archive:
            for path in self.files.paths:
                entry = archive.gettarinfo(self.files.folder / path, path)
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                if entry.isreg():
                    with (self.files.folder / path).open("rb") as file:
                        archive.addfile(entry, file)
                else:
                    archive.addfile(entry)
                sent += entry.size
                progress(sent, self.files.bytes)
            if self.mirror:
                archive.addfile(tarfile.TarInfo(_COMPLETE))

    def _failed(self, host: str, errors: str) -> Problem:
        known = self.ssh.explain(host, 255, errors)
        if known is not None and known.kind is not ProblemKind.OTHER:
            return known
        first = next((line.strip() for line in errors.splitlines() if line.strip()), "no reason")
        text = f"files cannot be copied to {self.target}: {first}"
        command = f"ls -ld {shlex.quote(self.target)}"
        advice = "see whether you may write there; df -h shows whether there is room"
        return self._problem(host, text, command, advice)

    def _problem(self, host: str, text: str, command: str, advice: str) -> Problem:
        run = f"{self.ssh.shown} {shlex.quote(host)} {shlex.quote(command)}"
        return Problem(host, ProblemKind.OTHER, text, run, advice)


def rsync_here() -> bool:
    """Return whether this machine has an rsync that reports its progress (3.1 or newer)."""
    try:
        shown = subprocess.run(
            ["rsync", "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except OSError:
        return False
    found = re.search(r"^rsync\s+version v?(\d+)\.(\d+)", shown)
    return found is not None and (int(found[1]), int(found[2])) >= (3, 1)


def _follow(output: IO[bytes], progress: Progress) -> tuple[int, int]:
    """Report the progress of rsync; return the numbers of files and bytes that it has sent."""
    counts = {"files": 0, "size": 0}
    rest = b""
    while piece := os.read(output.fileno(), 1 << 16):
        *lines, rest = re.split(rb"[\r\n]", rest + piece)
        for line in lines:
            if moving := re.match(rb"\s*([\d,]+)\s+(\d+)%", line):
                done, percent = _number(moving[1]), int(moving[2])
                progress(done, done * 100 // percent if percent else 0)
            elif files := re.match(rb"Number of regular files transferred: ([\d,]+)", line):
                counts["files"] = _number(files[1])
            elif size := re.match(rb"Total transferred file size: ([\d,]+)", line):
                counts["size"] = _number(size[1])
    return counts["files"], counts["size"]


def _number(text: bytes) -> int:
    return int(text.replace(b",", b""))


def _in_brackets(host: str) -> str:
    """Return the host as rsync needs it: a colon would end the name unless in brackets."""
    user, at, name = host.rpartition("@")
    return f"{user}{at}[{name}]" if ":" in name else host


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
