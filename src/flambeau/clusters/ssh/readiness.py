"""Checks whether a host can take part in a job of this machine, and what to change if not."""

import shlex
import sys

from flambeau.clusters.ssh.host_messages import Hello
from flambeau.clusters.ssh.probe import Description
from flambeau.clusters.ssh.problems import Problem, ProblemKind
from flambeau.clusters.ssh.requirements import minor, mismatch
from flambeau.version import __version__

_OLDEST = (3, 11)
_GIB = 1 << 30


def faults(found: Description, host: str, ssh: str, python: str | None) -> list[Problem]:
    """Return the problems that keep a host from taking part.

    `ssh` is the program as the user would type it, `python` the one that the user has named.
    """
    run = f"{ssh} {shlex.quote(host)}"
    every = (
        _elsewhere(found, host, python),
        unfit(found, host, ssh),
        _memory(found, host, run),
        _disk(found, host, run),
    )
    return [problem for problem in every if problem is not None]


def unfit(found: Description, host: str, ssh: str) -> Problem | None:
    """Return the problem with the Python, Flambeau or torch of a host, if any."""
    if tuple(map(int, found.python.split(".")[:2])) < _OLDEST:
        wanted = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return Problem(
            host,
            ProblemKind.PYTHON,
            f"{found.executable} is Python {found.python}; Flambeau needs 3.11 or newer",
            f"{ssh} -t {shlex.quote(host)} sudo apt-get install {wanted} {wanted}-venv",
            f"or another way to get the same as here; --python {wanted} then names it",
        )
    if found.flambeau is None:
        return Problem(
            host,
            ProblemKind.FLAMBEAU,
            f"its Python {found.executable} lacks Flambeau",
            f"{ssh} {shlex.quote(host)} {shlex.quote(pip_command(found.executable))}",
            "or copy this environment there with flambeau hosts sync",
        )
    hello = Hello(found.flambeau, minor(found.python), found.torch, "", "")
    return mismatch(host, ssh, found.executable, hello)


def pip_command(python: str) -> str:
    """Return the command that installs Flambeau and torch in the versions of this machine."""
    from importlib import metadata

    torch = metadata.version("torch").partition("+")[0]
    return shlex.join(
        [python, "-m", "pip", "install", f"flambeau=={__version__}", f"torch=={torch}"]
    )


def _elsewhere(found: Description, host: str, python: str | None) -> Problem | None:
    """Return the problem of a host that has a Python, but not where jobs expect it by default."""
    if python is not None or found.executable == sys.executable:
        return None
    return Problem(
        host,
        ProblemKind.PYTHON,
        f"there is no Python at {sys.executable}, but one at {found.executable}",
        "flambeau hosts sync",
        f"or give python={found.executable} in the settings of the cluster, and --python to this",
    )


def _memory(found: Description, host: str, run: str) -> Problem | None:
    free = found.memory_free
    if free is None or free >= _GIB:
        return None
    text = f"only {free / _GIB:.1f} GB of memory is free"
    return Problem(host, ProblemKind.OTHER, text, f"{run} ps aux", "see what uses it, and end that")


def _disk(found: Description, host: str, run: str) -> Problem | None:
    if found.free >= _GIB:
        return None
    text = f"only {found.free / _GIB:.1f} GB is free on the disk of {found.place}"
    command = f"{run} df -h {shlex.quote(found.place)}"
    return Problem(host, ProblemKind.OTHER, text, command, "see how full it is, and make room")
