"""Which agents are on one machine, and which of them can have roles forked from one process."""

import os
import platform
import sys
from pathlib import Path

from flambeau.kernels.cores import usable_cores

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Processes open each other's memory by process number, with the rights of their user.
_NAMESPACES = ("pid", "user")


def machine_identity() -> str:
    """Return what agents have in common that can share memory: a container is a machine too."""
    if not _BOOT_ID.exists():  # not Linux
        return platform.node()
    namespaces = (os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES)
    return " ".join([_BOOT_ID.read_text().strip(), *namespaces])


def fork_siblings(machine: str, job: str) -> str:
    """Return what agents of one job have in common whose roles can be forked from one process.

    `job` is a name that no other job has: the address of its coordinator, or a launcher's name.

    A role inherits the limits, the control group and the cores of the process that forks it, and
    ends with that: an engine that limits each of its processes expects them to have their own.
    """
    if sys.platform != "linux":
        return ""
    own = [Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "limits")]
    return repr((machine, job, usable_cores(), *own))
