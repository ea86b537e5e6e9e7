"""The processors that a process may use, as the kernel lists them."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flambeau.clusters.control_groups import core_quota
from flambeau.kernels.cores import usable_cores

_ROOT = Path("/")
_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"


@dataclass(frozen=True)
class Core:
    """A physical core: its NUMA node, and its hardware threads that this process may use."""

    node: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Processors:
    """The processors of a machine that a process may use.

    `cores` are sorted by node. `quota` is the CPU time that a container allows, in cores.
    `gpu_nodes` has the NUMA node of each GPU, in the order of torch; None: not known.
    """

    cores: tuple[Core, ...]
    quota: float | None = None
    gpu_nodes: tuple[int | None, ...] = ()

    @property
    def threads(self) -> list[int]:
        """All hardware threads, core by core."""
        return [thread for core in self.cores for thread in core.threads]

    @property
    def limited(self) -> bool:
        """Return whether a quota allows less CPU time than the threads could use."""
        return self.quota is not None and self.quota < len(self.threads)


def read_processors(root: Path = _ROOT, allowed: Sequence[int] | None = None) -> Processors:
    """Return the processors that this process may use; `root` may be a recorded file tree."""
    usable = usable_cores() if allowed is None else sorted(allowed)
    node_of = dict(_nodes(root))
    threads: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number in usable:
        topology = root / _CPUS / f"cpu{number}" / "topology"
        package = _number(topology / "physical_package_id", 0)
        core = _number(topology / "core_id", number)
        threads[node_of.get(number, 0), package, core].append(number)
    # Sorted by first thread within a node: core numbers may be in another order.
    order = sorted(threads.items(), key=lambda item: (item[0][0], item[1][0]))
    cores = tuple(Core(node, tuple(found)) for (node, _, _), found in order)
    return Processors(cores, core_quota(root), tuple(_gpu_nodes(root)))


def parse_list(text: str) -> list[int]:
    """Return the numbers of a list such as "0-3,8"."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _nodes(root: Path) -> Iterator[tuple[int, int]]:
    for folder in (root / _NODES).glob("node[0-9]*"):
        for number in parse_list((folder / "cpulist").read_text()):
            yield number, int(folder.name.removeprefix("node"))


def _gpu_nodes(root: Path) -> Iterator[int | None]:
    """Yield the nodes of NVIDIA GPUs in the order of their addresses, which is usually torch's.

    CUDA_VISIBLE_DEVICES selects among them by number; if it has another name, such as a UUID, the
    node is not known.
    """
    addresses = sorted(each.name for each in (root / "proc/driver/nvidia/gpus").glob("*"))
    found = [_number(root / f"sys/bus/pci/devices/{each}/numa_node", -1) for each in addresses]
    nodes = [None if node < 0 else node for node in found]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        yield from nodes
        return
    for name in filter(None, (part.strip() for part in visible.split(","))):
        known = re.fullmatch(r"\d+", name) is not None and int(name) < len(nodes)
        yield nodes[int(name)] if known else None


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return otherwise
