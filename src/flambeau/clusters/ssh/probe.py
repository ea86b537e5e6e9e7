"""The probe of a host: a script that is sent there describes it, and this machine likewise."""

import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO, final

import msgspec

from flambeau.clusters.ssh import probe_script
from flambeau.clusters.ssh.connection import SshProgram, hanging
from flambeau.clusters.ssh.problems import Problem, ProblemKind, last_line
from flambeau.clusters.ssh.remote_script import LOADER, script_input

_NO_PYTHON = 118
#: The first of these programs that exists runs the rest of the input.
_FIND_PYTHON = """\
for python in {candidates}; do
  if command -v "$python" >/dev/null 2>&1; then
    exec "$python" -c 'import sys; exec(sys.stdin.read({characters}))'
  fi
done
exit {no_python}
"""
_TRIPS = 5


class Question(msgspec.Struct, frozen=True):
    """The parameters of a host's description.

    `folder` is where disk space is needed. `markers` are files that the host may see, too. `base`
    is a Python interpreter whose version is needed. `markers` and `base` may be empty.
    """

    folder: str
    markers: tuple[str, ...] = ()
    base: str = ""


class Description(msgspec.Struct, frozen=True):
    """The description that a host has returned; see `probe_script.describe`. Sizes are in bytes."""

    host: str
    system: str
    machine: str
    libc: str
    python: str
    executable: str
    torch: str | None
    flambeau: str | None
    cores: int
    memory: int | None
    memory_free: int | None
    gpus: tuple[str, ...]
    place: str
    there: bool
    free: int
    writable: bool
    marked: tuple[bool, ...]
    base: str | None
    rsync: bool
    tar: bool

    @property
    def platform(self) -> str:
        """The operating system and processor architecture, such as `Linux x86_64`."""
        return f"{self.system} {self.machine}"


@final
@dataclass(frozen=True)
class Probed:
    """The result of a probe: a description, or why there is none.

    `latency` is the round-trip time of a message, in seconds.
    """

    host: str
    description: Description | None = None
    latency: float | None = None
    problem: Problem | None = None


def describe_here(question: Question) -> Description:
    """Return the description of this machine."""
    found = probe_script.describe(question.folder, list(question.markers), question.base)
    return msgspec.convert(found, Description)


def probe(
    ssh: SshProgram, host: str, question: Question, *, python: str | None = None, seconds: float
) -> Probed:
    """Return the description of a host, which has `seconds` to reply.

    `python` is the program that runs there; by default the path of this process's, or `python3`.
    """
    pythons = [sys.executable, "python3", "python"] if python is None else [python]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            ssh.command(host, LOADER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process:
            timer = Timer(seconds, process.kill)
            timer.start()
            try:
                answer = _converse(process, _script(pythons), question)
            finally:
                timer.cancel()
                if process.stdin is not None:
                    with suppress(BrokenPipeError):
                        process.stdin.close()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if answer is not None:
        return Probed(host, *answer)
    if process.returncode == -signal.SIGKILL:
        return Probed(host, problem=hanging(ssh, host, seconds))
    return Probed(host, problem=_failure(ssh, host, process.returncode, said, pythons))


def _script(pythons: Sequence[str]) -> bytes:
    """Return the loader's input: a script for sh, and one for the Python that this finds."""
    source = Path(probe_script.__file__).read_text(encoding="ascii")
    shell = _FIND_PYTHON.format(
        candidates=" ".join(shlex.quote(each) for each in pythons),
        characters=len(source),
        no_python=_NO_PYTHON,
    )
    return script_input(shell) + source.encode()


def _converse(
    process: subprocess.Popen[bytes], script: bytes, question: Question
) -> tuple[Description, float] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(script + msgspec.json.encode(question) + b"\n")
        process.stdin.flush()
        mark = probe_script.MARK.encode()
        # Programs that the login starts may print before it.
        found = next((line for line in process.stdout if line.startswith(mark)), None)
        if found is None:
            return None
        description = msgspec.json.decode(found.removeprefix(mark), type=Description)
        trips = [_round_trip(process.stdin, process.stdout) for _ in range(_TRIPS)]
    except BrokenPipeError:
        return None
    return description, min(trips)


def _round_trip(there: IO[bytes], back: IO[bytes]) -> float:
    began = time.perf_counter()
    there.write(b"\n")
    there.flush()
    back.readline()
    return time.perf_counter() - began


def _failure(ssh: SshProgram, host: str, code: int, errors: str, pythons: Sequence[str]) -> Problem:
    problem = None if code == _NO_PYTHON else ssh.explain(host, code, errors)
    if problem is not None and problem.kind is not ProblemKind.COMMAND:
        return problem
    if code == _NO_PYTHON:
        named = pythons[0] if len(pythons) == 1 else "python3"
        return Problem(
            host,
            ProblemKind.PYTHON,
            f"there is no Python: no program {named} in the PATH of commands that ssh runs",
            f"{ssh.shown} -t {shlex.quote(host)} sudo apt-get install python3-venv",
            "or what installs Python there; --python PATH names one in another place",
        )
    return Problem(
        host,
        ProblemKind.PYTHON,
        f"its Python cannot describe it: {last_line(errors) or f'exit code {code}'}",
        f"{ssh.shown} {shlex.quote(host)} {shlex.quote(pythons[0])} --version",
        "it has to be Python 3.6 or newer to be described, and 3.11 or newer for jobs",
    )
