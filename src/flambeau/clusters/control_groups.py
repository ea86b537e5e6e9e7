"""Limits that a container or a scheduler sets by control groups (versions 1 and 2)."""

import math
from collections.abc import Iterator
from pathlib import Path

from flambeau.kernels.cores import usable_cores

_ROOT = Path("/")


def core_quota(root: Path = _ROOT) -> float | None:
    """Return the CPU quota of this process in cores, or None without a limit."""
    quotas = [float(used) / float(period) for used, period in _cpu_limits(root) if float(used) > 0]
    return min(quotas, default=None)


def count_cores() -> int:
    """Return the number of cores that this process can keep busy."""
    usable, quota = len(usable_cores()), core_quota()
    return usable if quota is None else min(usable, max(1, math.ceil(quota)))


def memory_limits(root: Path = _ROOT) -> Iterator[int]:
    """Yield the memory limits of this process in bytes, if any."""
    for folder in _folders("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                yield int(text)


def _cpu_limits(root: Path) -> Iterator[tuple[str, str]]:
    for folder in _folders("cpu", root):
        unified = _read(folder / "cpu.max").split()
        if len(unified) == 2 and unified[0] != "max":
            yield unified[0], unified[1]
        used, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if used and period:
            yield used, period


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield the control groups of this process and all their parents."""
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = groups / controllers if controllers else groups
        own = top / path.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def _read(path: Path) -> str:
    """Return the text of a file, or an empty string where this kernel has no such file."""
    return path.read_text().strip() if path.is_file() else ""
