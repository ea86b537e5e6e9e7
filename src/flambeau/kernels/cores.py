"""The cores that this process may use, and large batches on several of them at once."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

#: Rows that a thread takes at a time: with fewer, that costs more than it saves.
PART_ROWS = 4096
#: Memory has little more to give than these can ask for, and other processes want theirs.
MOST_THREADS = 4


def usable_cores() -> list[int]:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def spread(work: Callable[[slice], None], size: int) -> None:
    """Call `work` with parts that make up `size` items, by several threads if they are many.

    It is for kernels, which run without the interpreter's lock and mostly wait for memory. No part
    may touch what another does.
    """
    threads = size // PART_ROWS
    if threads > 1:
        threads = min(threads, MOST_THREADS, len(usable_cores()))
    if threads < 2:
        work(slice(0, size))
        return
    parts = iter([slice(start, start + PART_ROWS) for start in range(0, size, PART_ROWS)])

    def work_on() -> None:
        for part in parts:
            work(part)

    helpers = _helpers(os.getpid())
    running = [helpers.submit(work_on) for _ in range(threads - 1)]
    try:
        work_on()
    finally:
        # Who has not begun by now, because other processes are busy, need not begin.
        begun = [each for each in running if not each.cancel()]
    for each in begun:
        each.result()


@functools.cache
def _helpers(pid: int) -> ThreadPoolExecutor:
    """Threads of this process: a fork has none of those of its parent."""
    return ThreadPoolExecutor(MOST_THREADS - 1, "flambeau-rows")
