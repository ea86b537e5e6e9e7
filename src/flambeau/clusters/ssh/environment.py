"""The virtual environment of this process, and which hosts can use a copy of it."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import final

from flambeau.clusters.ssh.probe import Description
from flambeau.clusters.ssh.requirements import minor


@final
@dataclass(frozen=True)
class Environment:
    """A virtual environment: its folder, and the interpreter that it links to."""

    folder: Path
    base: str


def environment_here() -> Environment | None:
    """Return the virtual environment that this process runs in, if any."""
    folder = Path(sys.prefix)
    if sys.prefix == sys.base_prefix or not (folder / "pyvenv.cfg").is_file():
        return None
    return Environment(folder, _leads_to(folder / "bin" / "python"))


def _leads_to(program: Path) -> str:
    """Return the first file outside the program's folder that its links lead to."""
    folder = program.parent
    while program.is_symlink() and program.parent == folder:
        program = Path(os.path.normpath(program.parent / program.readlink()))
    return str(program)


def misfit(environment: Environment, found: Description, here: Description) -> str | None:
    """Return why a copy of the environment would not run on a host; None if it would.

    Both descriptions reply to a question about the interpreter that the environment links to.
    """
    if found.platform != here.platform:
        return f"it is {found.platform}, and here it is {here.platform}"
    if _release(found.libc) < _release(here.libc):
        return f"its {found.libc} is older than {here.libc}, which is here"
    if found.base is None:
        return f"it has no Python at {environment.base}"
    if here.base is None or minor(found.base) != minor(here.base):
        return f"its Python is {found.base}, and here it is {here.base}"
    return None


def _release(libc: str) -> tuple[int, ...]:
    """Return the version in a text such as `glibc 2.36`; empty if it is not known."""
    return tuple(int(part) for part in libc.rpartition(" ")[2].split(".") if part.isdecimal())
