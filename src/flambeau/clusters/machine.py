"""Which agents are on one machine."""

import os
import platform
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Processes open each other's memory by process number, with the rights of their user.
_NAMESPACES = ("pid", "user")


def machine_identity() -> str:
    """Return what agents have in common that can share memory: a container is a machine too."""
    if not _BOOT_ID.exists():  # not Linux
        return platform.node()
    namespaces = (os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES)
    return " ".join([_BOOT_ID.read_text().strip(), *namespaces])
