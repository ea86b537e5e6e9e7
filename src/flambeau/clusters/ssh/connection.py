"""Commands on hosts, started with the user's own ssh program, config, agent and keys."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, final

from flambeau.clusters.ssh.problems import Problem, ProblemKind, explain
from flambeau.errors import ConfigError, MissingDependencyError

#: How long a host may take to accept a connection.
CONNECT_SECONDS = 10
#: How many hosts are handled at the same time.
AT_ONCE = 64
#: ssh detects a lost host after three of these intervals.
_ALIVE_SECONDS = 10
#: Options so that ssh does not prompt the user or leave a process behind: it does not open a shared
#: connection for other commands, but may use one that is already open.
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_SECONDS}",
    f"ServerAliveInterval={_ALIVE_SECONDS}",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "RemoteCommand=none",
)

Result = TypeVar("Result")


@final
class SshProgram:
    """The ssh program with the user's options, such as `ssh -F file -i key.pem`.

    The user's options come first, so they take precedence over those here.
    """

    def __init__(self, given: str | Sequence[str] = "ssh") -> None:
        try:
            self.words = shlex.split(given) if isinstance(given, str) else list(given)
        except ValueError as error:
            raise ConfigError(f"ssh={given!r}: {error}") from None
        if not self.words:
            raise ConfigError("ssh='': give a program, such as 'ssh' or 'ssh -F my_config'")
        if shutil.which(self.words[0]) is None:
            raise MissingDependencyError(
                f"there is no program {self.words[0]!r} on this machine: install it "
                "(apt-get install openssh-client), or name another one with ssh="
            )

    @property
    def transport(self) -> list[str]:
        """The program and its options, to which a host and a command are added."""
        return [*self.words, *(word for option in _OPTIONS for word in ("-o", option))]

    @property
    def shown(self) -> str:
        """The program as a user would type it."""
        return shlex.join(self.words)

    def command(self, host: str, remote: str | Sequence[str], *options: str) -> list[str]:
        """Return the command line that runs a command on a host, without a terminal.

        The words of a list arrive there unchanged; a string is interpreted by the host's shell.
        """
        text = remote if isinstance(remote, str) else shlex.join(remote)
        return [*self.transport, "-T", *options, "--", host, text]

    def explain(self, host: str, code: int, errors: str) -> Problem | None:
        """Return why a command could not be run on a host; None if it ran, with any exit code."""
        return explain(host, self.shown, code, errors)


@dataclass(frozen=True)
class Answer:
    """The output and exit code of a command on a host, or why it could not be run."""

    host: str
    code: int
    output: bytes
    errors: str
    seconds: float
    problem: Problem | None = None


def ask(
    ssh: SshProgram,
    host: str,
    remote: str | Sequence[str],
    *,
    seconds: float,
    given: bytes = b"",
) -> Answer:
    """Run a command on a host for at most `seconds`; `given` is its standard input."""
    began = time.monotonic()
    process = subprocess.Popen(
        ssh.command(host, remote),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    hangs = False
    try:
        output, errors = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        hangs = True
        process.kill()
        output, errors = process.communicate()
    text, taken = errors.decode(errors="replace"), time.monotonic() - began
    code = process.returncode
    problem = hanging(ssh, host, seconds) if hangs else ssh.explain(host, code, text)
    return Answer(host, code, output, text, taken, problem)


def ask_all(
    ssh: SshProgram, hosts: Iterable[str], remote: str | Sequence[str], *, seconds: float
) -> dict[str, Answer]:
    """Run a command on all hosts at once; return the answer of each host."""
    return on_all(hosts, lambda host: ask(ssh, host, remote, seconds=seconds))


def on_all(
    hosts: Iterable[str],
    work: Callable[[str], Result],
    *,
    on_interrupt: Callable[[], None] | None = None,
) -> dict[str, Result]:
    """Call `work` for all hosts at once, each in a thread; return the results by host.

    `on_interrupt` ends what the threads wait for, if an exception such as Ctrl-C ends this call.
    """
    names = list(dict.fromkeys(hosts))
    if not names:
        return {}
    with ThreadPoolExecutor(min(len(names), AT_ONCE), "flambeau-ssh") as threads:
        try:
            return dict(zip(names, threads.map(work, names), strict=True))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            if on_interrupt is not None:
                on_interrupt()
            raise


def hanging(ssh: SshProgram, host: str, seconds: float) -> Problem:
    """Return the problem of a host whose login or command does not end."""
    return Problem(
        host,
        ProblemKind.HANGS,
        f"no answer within {seconds:g} s: the login hangs or is very slow",
        f"{ssh.shown} {shlex.quote(host)} true",
        "see what it waits for; programs that a startup file of the shell there starts are a "
        "frequent cause",
    )


def problems_of(answers: Mapping[str, Answer]) -> list[Problem]:
    """Return the problems among answers."""
    return [answer.problem for answer in answers.values() if answer.problem is not None]
