"""Detection of processes that the kernel has killed for lack of memory."""

import re
from pathlib import Path
from typing import final

COUNTERS = Path("/proc/vmstat")


@final
class OutOfMemoryKills:
    """The kernel's count of out-of-memory kills on this machine, including its containers.

    A process that ended by SIGKILL has not necessarily run out of memory; one that ended while
    this count went up most likely has.
    """

    def __init__(self, counters: Path = COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count()

    def new(self) -> bool:
        """Return whether there were any kills since the last call."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        text = self._counters.read_text() if self._counters.is_file() else ""
        found = re.search(r"^oom_kill (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0
