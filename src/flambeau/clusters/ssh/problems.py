"""The meanings of ssh's error messages, and the commands that help."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from flambeau.config.plural import number_of

#: ssh's own exit code for an error before the command ran.
SSH_FAILED = 255
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


class ProblemKind(Enum):
    """The kinds of reasons why a host cannot be used."""

    NAME = "its name is not known"
    UNREACHABLE = "it cannot be reached"
    REFUSED = "it refuses connections"
    HOST_KEY_UNKNOWN = "its host key is not known"
    HOST_KEY_CHANGED = "its host key has changed"
    DENIED = "it accepts none of the keys"
    CLOSED = "it closes connections"
    HANGS = "the login hangs"
    CONFIG = "the configuration of ssh is wrong"
    COMMAND = "it lacks a command"
    PYTHON = "it lacks Python"
    FLAMBEAU = "it lacks Flambeau"
    VERSION = "it has other versions"
    OTHER = "another problem"


@dataclass(frozen=True)
class Problem:
    """A reason why a host cannot be used; `command` helps, as `advice` explains."""

    host: str
    kind: ProblemKind
    text: str
    command: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f" ({self.advice})" if self.advice else ""
        return f"{self.host}: {self.text}. Run: {self.command}{advice}"


def listed(problems: Sequence[Problem], hosts: int) -> str:
    """Return the text of an error about some of the hosts, of which there are `hosts`."""
    lines = "\n".join(f"  {problem}" for problem in problems)
    return f"{len(problems)} of {number_of(hosts, 'host')} cannot be used:\n{lines}"


@dataclass(frozen=True)
class _Meaning:
    """The meaning of a message; `{host}`, `{ssh}` and groups of the pattern are filled in."""

    pattern: re.Pattern[str]
    kind: ProblemKind
    text: str
    command: str
    advice: str = ""


def _means(pattern: str, kind: ProblemKind, text: str, command: str, advice: str = "") -> _Meaning:
    return _Meaning(re.compile(pattern, re.IGNORECASE), kind, text, command, advice)


_TRY = "{ssh} {host} true"
_VERBOSE = "{ssh} -v {host} true"
#: The first match counts: a changed key also fails the verification.
_MEANINGS = (
    _means(
        r"Offending \S+ key in (?P<file>\S+):\d+(?s:.*)Host key for (?P<known>\S+) has changed",
        ProblemKind.HOST_KEY_CHANGED,
        "its host key has changed: it was installed anew, or another machine has its address",
        "ssh-keygen -f {file} -R {known}",
        "once you know that it is the right machine; then {ssh} {host} true",
    ),
    _means(
        r"Host key verification failed|host key is known for",
        ProblemKind.HOST_KEY_UNKNOWN,
        "its host key is not known here",
        _TRY,
        "compare the fingerprint, and answer yes",
    ),
    _means(
        r"Too many authentication failures",
        ProblemKind.DENIED,
        "it was offered too many keys before the right one",
        "{ssh} -o IdentitiesOnly=yes -i KEY {host} true",
        "with its key; then put both settings into ~/.ssh/config",
    ),
    _means(
        r"Permission denied \([^)]*(?:password|keyboard-interactive)",
        ProblemKind.DENIED,
        "it asks for a password, since it accepts none of your keys",
        "ssh-copy-id{options} {host}",
        "if your key has a passphrase, run ssh-add before",
    ),
    _means(
        r"Permission denied \(",
        ProblemKind.DENIED,
        "it accepts none of your keys",
        _VERBOSE,
        "see which keys are offered; ssh-add KEY, or ssh='ssh -i KEY' names another one, and "
        "user@host another user",
    ),
    _means(
        r"Could not resolve hostname|Name or service not known|nodename nor servname",
        ProblemKind.NAME,
        "its name is not known here",
        "{ssh} -G {host}",
        "see the host name that ssh uses; correct the host file, or add the name to ~/.ssh/config",
    ),
    _means(
        r"Connection refused",
        ProblemKind.REFUSED,
        "it refuses connections: no ssh server listens at that address and port",
        _VERBOSE,
        "see the address and port; start sshd there, or correct them in ~/.ssh/config",
    ),
    _means(
        r"(?:Connection|Operation) timed out|Timeout, server|timed out during banner",
        ProblemKind.UNREACHABLE,
        "it does not answer: it is off, its address is wrong, or a firewall is between",
        _VERBOSE,
        "see the address and port; security groups must allow ssh from here",
    ),
    _means(
        r"No route to host|Network is unreachable|Host is down",
        ProblemKind.UNREACHABLE,
        "no network path leads to it: it is off, or its address is wrong",
        _VERBOSE,
        "see the address; correct it in the host file or ~/.ssh/config",
    ),
    _means(
        r"Bad configuration option|bad ssh2? \w+ spec|Can't open user config file|Bad owner or "
        r"permissions|no argument after keyword|terminating, \d+ bad configuration",
        ProblemKind.CONFIG,
        "ssh does not accept its configuration: {line}",
        "{ssh} -G {host}",
        "see the message; correct the file",
    ),
    _means(
        r"Connection (?:closed|reset)|kex_exchange_identification|banner exchange",
        ProblemKind.CLOSED,
        "it closes the connection before the login: {line}",
        _VERBOSE,
        "too many connections at once (MaxStartups of its sshd), or an access rule there",
    ),
)


def explain(host: str, ssh: str, code: int, errors: str) -> Problem | None:
    """Return why a command could not be run on a host; None if it ran, with any other exit code.

    `ssh` is the program as the user would type it, `errors` is its standard error.
    """
    if code == SSH_FAILED:
        return _of_ssh(host, ssh, errors)
    if code in (_NOT_FOUND, _NOT_EXECUTABLE):
        return Problem(
            host,
            ProblemKind.COMMAND,
            f"a command was not found or cannot be run: {last_line(errors)}",
            f"{ssh} {shlex.quote(host)} env",
            "see the PATH of commands that ssh runs, which is not that of a login",
        )
    return None


def _of_ssh(host: str, ssh: str, errors: str) -> Problem:
    for meaning in _MEANINGS:
        found = meaning.pattern.search(errors)
        if found:
            words = {name: shlex.quote(word) for name, word in found.groupdict().items() if word}
            options = ssh.partition(" ")[1:]
            known = {"host": shlex.quote(host), "ssh": ssh, "options": "".join(options)}
            filling = {**known, "line": last_line(errors), **words}
            text, command, advice = (
                part.format(**filling) for part in (meaning.text, meaning.command, meaning.advice)
            )
            return Problem(host, meaning.kind, text, command, advice)
    text = f"ssh could not run a command there: {last_line(errors) or 'it gave no reason'}"
    return Problem(host, ProblemKind.OTHER, text, f"{ssh} -v {shlex.quote(host)} true")


def last_line(errors: str) -> str:
    """Return the last line of a program's output that is not a warning."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    serious = [line for line in lines if not line.lower().lstrip("* ").startswith("warning")]
    return (serious or lines or [""])[-1][:300].rstrip(".")
