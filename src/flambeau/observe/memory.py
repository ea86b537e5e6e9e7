"""The largest memory of one process, or of a process and all that it has started."""

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

#: Seconds between two looks.
EVERY = 0.5


def peak_memory() -> int:
    """Return the largest resident memory that this process has had, in bytes.

    Pages that it shares with others count in full. (`getrusage` would count what its parent had
    when it was forked.)
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest << 10
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@final
class PeakMemory:
    """The largest sum of memory of this process and its descendants that was seen, in bytes.

    Pages that processes share count once. None where the system does not say (only Linux does).
    """

    def __init__(self) -> None:
        self.bytes: int | None = None

    def look(self) -> None:
        """Take note of the memory that is used now."""
        used = sum(_memory(process) for process in _tree(os.getpid()))
        if used:
            self.bytes = max(used, self.bytes or 0)


@contextmanager
def watched_memory() -> Iterator[PeakMemory]:
    """Watch the memory of this process and its descendants meanwhile."""
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
            # The name, in parentheses, may hold anything; the parent is the second field after it.
            parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(int(entry.parent.name))
    found, waiting = set[int](), [root]
    while waiting:
        process = waiting.pop()
        found.add(process)
        waiting += children.get(process, [])
    return found


def _memory(process: int) -> int:
    """Return the bytes of a process, with its share of what it shares; 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0
