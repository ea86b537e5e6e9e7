"""Execution of a user's program in this process, as Python itself would run it."""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_program(name: str, arguments: Sequence[str], *, module: bool) -> None:
    """Run a script as `__main__`, or with `module` what `python -m` would run.

    Imports are searched for where Python searches first: in the script's folder, or with `module`
    in the working directory.
    """
    sys.path.insert(0, os.getcwd() if module else str(Path(name).resolve().parent))
    sys.argv = [name, *arguments]
    if module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")
