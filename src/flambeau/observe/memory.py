"""The peak memory of a process, or of a process and its descendants."""

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

#: Seconds between two measurements.
EVERY = 0.5


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes.

    Pages shared with other processes count in full. (`getrusage` would include the memory of the
    parent at the time of the fork.)
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest << 10
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@final
class PeakMemory:
    """The largest measured memory of this process and its descendants together, in bytes.

    Pages that processes share count once. It is None except on Linux.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None

    def look(self) -> None:
        """Measure the memory that is used now."""
        used = sum(_memory(process) for process in _tree(os.getpid()))
        if used:
            self.bytes = max(used, self.bytes or 0)


@contextmanager
def watched_memory() -> Iterator[PeakMemory]:
    """Measure the memory of this process and its descendants during the `with` block."""
    peak, ended = PeakMemory(), threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY):
            peak.look()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    peak.look()
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _tree(root: int) -> set[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold any text; the parent is the second field after it.
            parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # the process has ended meanwhile
        children.setdefault(parent, []).append(int(entry.parent.name))
    found, waiting = set[int](), [root]
    while waiting:
        process = waiting.pop()
        found.add(process)
        waiting += children.get(process, [])
    return found


def _memory(process: int) -> int:
    """Return the proportional memory (PSS) of a process, in bytes; 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0
