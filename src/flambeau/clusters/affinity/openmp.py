"""Environment variables that set the number of OpenMP threads and their cores."""

import os
import sys
from functools import cache
from pathlib import Path

from flambeau.clusters.affinity.bindings import Binding

_LIBRARIES = ("libiomp5.so", "libiomp5.dylib", "libiomp5md.dll")


def environment_of(binding: Binding) -> dict[str, str]:
    """Return the environment variables of a rank with this binding."""
    if binding.threads is None:
        return {}
    threads = str(binding.threads)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **intel_environment(bool(binding.cpus)),
    }


def intel_environment(bound: bool) -> dict[str, str]:
    """Return variables for Intel's OpenMP, if it is present, except those that the user has set.

    By default, its threads spin for 0.2 s after each parallel region and move between cores.
    Unbound ranks get no KMP_AFFINITY: it would place the threads of all of them on the same cores.
    """
    if not _is_present():
        return {}
    wanted = {"KMP_BLOCKTIME": "1"}
    if bound:
        wanted["KMP_AFFINITY"] = "granularity=fine,compact,1,0"
    return {name: value for name, value in wanted.items() if name not in os.environ}


@cache
def _is_present() -> bool:
    if "iomp5" in os.environ.get("LD_PRELOAD", ""):
        return True
    folders = [Path(sys.prefix) / "lib", *(Path(each) / "torch/lib" for each in sys.path)]
    return any((folder / name).exists() for folder in folders for name in _LIBRARIES)
