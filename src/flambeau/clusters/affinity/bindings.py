"""The distribution of a machine's processors over ranks."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flambeau.clusters.affinity.processors import Core, Processors


@dataclass(frozen=True)
class Binding:
    """The hardware threads that a rank may use, and its number of threads.

    Without `cpus`, the rank is not bound. If `threads` is None, libraries choose the number.
    """

    cpus: tuple[int, ...]
    threads: int | None


def plan_bindings(
    processors: Processors, ranks: int, *, threads: int | None = None, threads_per_core: int = 1
) -> list[Binding]:
    """Return disjoint sets of hardware threads, one for each rank.

    Ranks get physical cores, and `threads_per_core` hardware threads of each; single hardware
    threads only if there are more ranks than cores. With at least as many ranks as NUMA nodes, a
    rank stays within a node: that of its GPU if it is known. With a quota, or with more ranks than
    hardware threads, no rank is bound: each may use any processor for part of the time.
    """
    total = len(processors.threads)
    if processors.limited or ranks > total:
        available = total if not processors.limited else math.ceil(processors.quota or 1)
        share = max(1, available // ranks)
        return [Binding((), threads or share)] * ranks
    units = [Core(core.node, core.threads[:threads_per_core]) for core in processors.cores]
    if ranks > len(units):
        units = [Core(core.node, (each,)) for core in processors.cores for each in core.threads]
    return [
        Binding(cpus, threads or len(cpus))
        for cpus in (
            tuple(thread for core in dealt for thread in core.threads)
            for dealt in _deal(units, ranks, processors.gpu_nodes)
        )
    ]


def _deal(
    units: Sequence[Core], ranks: int, gpu_nodes: Sequence[int | None]
) -> list[Sequence[Core]]:
    """Return the units of each rank."""
    by_node: defaultdict[int, list[Core]] = defaultdict(list)
    for unit in units:
        by_node[unit.node].append(unit)
    if ranks < len(by_node):
        return _split(units, ranks)
    sizes = {node: len(found) for node, found in by_node.items()}
    nodes = _nodes_of_gpus(sizes, ranks, gpu_nodes) or _nodes_by_size(sizes, ranks)
    dealt: list[Sequence[Core]] = [()] * ranks
    for node, found in by_node.items():
        chosen = [rank for rank in range(ranks) if nodes[rank] == node]
        for rank, part in zip(chosen, _split(found, len(chosen)), strict=True):
            dealt[rank] = part
    return dealt


def _nodes_of_gpus(
    sizes: dict[int, int], ranks: int, gpu_nodes: Sequence[int | None]
) -> list[int] | None:
    """Return the node of each rank's GPU; None if one is unknown or has too few cores."""
    if not gpu_nodes:
        return None
    wanted = [gpu_nodes[rank % len(gpu_nodes)] for rank in range(ranks)]
    chosen = [node for node in wanted if node is not None]
    if len(chosen) < ranks or any(chosen.count(node) > sizes.get(node, 0) for node in chosen):
        return None
    return chosen


def _nodes_by_size(sizes: dict[int, int], ranks: int) -> list[int]:
    """Return a node for each rank, so that the smallest share of cores is as large as possible."""
    counts = dict.fromkeys(sizes, 0)
    for _ in range(ranks):
        best = max(sizes, key=lambda node: (sizes[node] / (counts[node] + 1), -node))
        counts[best] += 1
    return [node for node, count in counts.items() for _ in range(count)]


def _split(units: Sequence[Core], parts: int) -> list[Sequence[Core]]:
    """Return contiguous parts of nearly the same size."""
    bounds = [round(part * len(units) / parts) for part in range(parts + 1)] if parts else [0]
    return [units[start:stop] for start, stop in itertools.pairwise(bounds)]
