"""The requirements of a host: Python, Flambeau and torch in the versions of the driver."""

import re
import shlex
import sys
from importlib import metadata

from flambeau.clusters.ssh.host_messages import Hello
from flambeau.clusters.ssh.problems import Problem, ProblemKind, last_line
from flambeau.version import __version__

_NO_MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)")
_NO_PYTHON = "flambeau: no such Python"
_SYNC = "or copy this environment there with flambeau hosts sync"


def remote_command(python: str, folder: str, module: str) -> str:
    """Return the command for a host's shell that runs a module.

    The module runs in the driver's folder, if that exists on the host.
    """
    program = shlex.quote(python)
    script = (
        f"cd {shlex.quote(folder)} 2>/dev/null; "
        f"command -v {program} >/dev/null 2>&1 || {{ echo '{_NO_PYTHON}' >&2; exit 127; }}; "
        f"exec {program} -u -m {module}"
    )
    return f"exec sh -c {shlex.quote(script)}"


def lacking(host: str, ssh: str, python: str, errors: str) -> Problem | None:
    """Return what a host lacks according to the error output of its process; None if nothing."""
    if _NO_PYTHON in errors:
        return Problem(
            host,
            ProblemKind.PYTHON,
            f"there is no Python at {python}",
            _on(host, ssh, "command -v python3"),
            f"give the path of one with Flambeau as python=, {_SYNC}",
        )
    found = _NO_MODULE.search(errors)
    if found is None:
        return None
    if found["name"].startswith("flambeau."):  # it has no module for ssh hosts yet
        return _another(host, ssh, python, f"an older Flambeau, this driver {__version__}")
    what = "Flambeau" if found["name"] == "flambeau" else f"the module {found['name']}"
    return Problem(
        host,
        ProblemKind.FLAMBEAU,
        f"its Python {python} lacks {what}",
        _install(host, ssh, python, f"flambeau=={__version__}"),
        _SYNC,
    )


def mismatch(host: str, ssh: str, python: str, hello: Hello) -> Problem | None:
    """Return the problem if the host has other versions than the driver."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if hello.python != own:
        return Problem(
            host,
            ProblemKind.VERSION,
            f"{python} is Python {hello.python} there, and {own} here",
            _on(host, ssh, f"command -v python{own}"),
            f"give the path of such a Python with Flambeau as python=, {_SYNC}",
        )
    if hello.flambeau != __version__:
        versions = f"Flambeau {hello.flambeau}, this driver {__version__}"
        return _another(host, ssh, python, versions)
    torch = metadata.version("torch").partition("+")[0]
    if hello.torch is None or minor(hello.torch) != minor(torch):
        has = "no torch" if hello.torch is None else f"torch {hello.torch}"
        return Problem(
            host,
            ProblemKind.VERSION,
            f"it has {has}, this driver torch {torch}",
            _install(host, ssh, python, f"torch=={torch}"),
            _SYNC,
        )
    return None


def minor(version: str) -> str:
    """Return the major and minor number of a version."""
    return ".".join(version.split(".")[:2])


def unexpected(host: str, ssh: str, errors: str) -> Problem:
    """Return the problem of a host whose process has ended for another reason."""
    text = f"Flambeau does not start there: {last_line(errors) or 'it gave no reason'}"
    return Problem(host, ProblemKind.OTHER, text, _on(host, ssh, "true"), "see that this works")


def _another(host: str, ssh: str, python: str, versions: str) -> Problem:
    command = _install(host, ssh, python, f"flambeau=={__version__}")
    return Problem(host, ProblemKind.VERSION, f"it has {versions}", command, _SYNC)


def _install(host: str, ssh: str, python: str, package: str) -> str:
    return _on(host, ssh, shlex.join([python, "-m", "pip", "install", package]))


def _on(host: str, ssh: str, command: str) -> str:
    return f"{ssh} {shlex.quote(host)} {command}"
