"""The cores that this process may use, and the distribution of large batches over them."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

#: Rows that a thread processes at a time; fewer would cost more than they save.
PART_ROWS = 4096
#: More threads would not get more memory bandwidth, and other processes need cores.
MOST_THREADS = 4


def usable_cores() -> list[int]:
    """Return the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def spread(work: Callable[[slice], None], size: int) -> None:
    """Call `work` with slices that cover `size` items, in several threads if there are many.

    It is for kernels, which run without the GIL and mostly wait for memory. No slice may touch data
    of another.
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
        # Cancel tasks that have not begun by now, because other processes use the cores.
        begun = [each for each in running if not each.cancel()]
    for each in begun:
        each.result()


@functools.cache
def _helpers(pid: int) -> ThreadPoolExecutor:
    """Return the threads of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(MOST_THREADS - 1, "flambeau-rows")
