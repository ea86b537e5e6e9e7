"""A picture of a machine's cores and their ranks, in text characters."""

import itertools
from collections.abc import Sequence

from flambeau.clusters.affinity.bindings import Binding
from flambeau.clusters.affinity.processors import Processors
from flambeau.config.plural import number_of

#: One character for each rank; further ranks start again with the first one.
MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"
UNUSED = "."
WIDTH = 64


def draw(processors: Processors, bindings: Sequence[Binding]) -> list[str]:
    """Return lines: for each node a character for each hardware thread, then a line for each rank.

    Columns are cores; further rows show further hardware threads of the same cores.
    """
    owner = {
        cpu: MARKS[rank % len(MARKS)]
        for rank, binding in enumerate(bindings)
        for cpu in binding.cpus
    }
    lines = []
    for node, group in itertools.groupby(processors.cores, key=lambda core: core.node):
        cores = list(group)
        depth = max(len(core.threads) for core in cores)
        title = f"NUMA node {node}: {number_of(len(cores), 'core')}"
        lines.append(title if depth == 1 else f"{title}, {depth} hardware threads each")
        for start in range(0, len(cores), WIDTH):
            part = cores[start : start + WIDTH]
            for level in range(depth):
                marks = (
                    owner.get(core.threads[level], UNUSED) if level < len(core.threads) else " "
                    for core in part
                )
                lines.append(f"  {''.join(marks)}")
    return lines + [_of_rank(rank, each) for rank, each in enumerate(bindings)]


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers in the kernel's list format, such as "0-3,8"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def _of_rank(rank: int, binding: Binding) -> str:
    where = f"bound to CPUs {ranges(binding.cpus)}" if binding.cpus else "not bound"
    threads = "" if binding.threads is None else f"{number_of(binding.threads, 'thread')}, "
    return f"rank {rank}: {threads}{where}"
