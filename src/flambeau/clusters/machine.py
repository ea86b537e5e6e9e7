"""Identifiers of agents that are on one machine, and of those that can share a fork server."""

import os
import platform
import sys
from pathlib import Path

from flambeau.kernels.cores import usable_cores

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Processes open each other's memory by process id, with the rights of their user.
_NAMESPACES = ("pid", "user")


def machine_identity() -> str:
    """Return an identifier of agents that can share memory; a container counts as a machine."""
    if not _BOOT_ID.exists():  # not Linux
        return platform.node()
    namespaces = (os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES)
    return " ".join([_BOOT_ID.read_text().strip(), *namespaces])


def fork_siblings(machine: str, job: str) -> str:
    """Return an identifier of the agents of one job whose roles one process can fork.

    `job` is a unique name of the job: the address of its coordinator, or a name by its launcher.

    A role inherits the limits, the control group and the cores of the process that forks it, and
    ends with it: an engine that limits each of its processes expects roles to have these limits.
    """
    if sys.platform != "linux":
        return ""
    own = [Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "limits")]
    return repr((machine, job, usable_cores(), *own))
