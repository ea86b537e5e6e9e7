"""Which cores a worker may use, and how many threads suit it."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from flambeau.kernels.cores import usable_cores

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def core_quota() -> int | None:
    """How many cores a container's limit allows, or None without a limit."""
    if not _CPU_MAX.exists():
        return None
    quota, period = _CPU_MAX.read_text().split()
    return None if quota == "max" else max(1, math.ceil(int(quota) / int(period)))


def all_cores() -> int:
    """Return how many processes use all cores that this process may use."""
    cores = len(usable_cores())
    return min(cores, core_quota() or cores)


def split_cores(cores: Sequence[int], workers: int) -> list[list[int]] | None:
    """A disjoint, contiguous set of cores for each worker; None if there are too few."""
    if workers > len(cores):
        return None
    bounds = [round(index * len(cores) / workers) for index in range(workers + 1)]
    return [list(cores[start:stop]) for start, stop in itertools.pairwise(bounds)]


def plan_cores(workers: int, threads: int | None) -> list[tuple[list[int], int]]:
    """Return cores (none: not pinned) and threads of each worker that shares an agent's cores."""
    cores = usable_cores()
    quota = core_quota()
    limited = quota is not None and quota < len(cores)
    # Under a quota any core may be used for some of the time: pinning would only hurt.
    sets = None if limited else split_cores(cores, workers)
    count = min(len(cores), quota or len(cores))
    share = max(1, count // workers)
    return [
        (sets[index] if sets else [], threads or (len(sets[index]) if sets else share))
        for index in range(workers)
    ]
