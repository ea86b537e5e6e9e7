"""What is in shared memory on this machine, for tests that none of it is left behind."""

import time
from pathlib import Path

_FOLDER = Path("/dev/shm")


def shared() -> set[str]:
    """The names of what is there."""
    return {entry.name for entry in _FOLDER.iterdir()} if _FOLDER.is_dir() else set()


def still_shared(names: set[str]) -> set[str]:
    """Those that stay; what tests beside this one share has a name for a moment only."""
    deadline = time.monotonic() + 10
    while names and time.monotonic() < deadline:
        time.sleep(0.05)
        names = names & shared()
    return names
