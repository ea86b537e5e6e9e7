"""Machines as their kernels list them, written into a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Machine:
    """Hardware threads by (node, package, core), and what a container allows."""

    cores: Mapping[tuple[int, int, int], Sequence[int]]
    quota: str | None = None
    gpu_nodes: Sequence[int] = ()

    def write(self, root: Path) -> Path:
        nodes: dict[int, list[int]] = {}
        for (node, package, core), threads in self.cores.items():
            nodes.setdefault(node, []).extend(threads)
            for thread in threads:
                write(root / f"sys/devices/system/cpu/cpu{thread}/topology/core_id", core)
                package_file = "topology/physical_package_id"
                write(root / f"sys/devices/system/cpu/cpu{thread}/{package_file}", package)
        for node, threads in nodes.items():
            listed = ",".join(map(str, sorted(threads)))
            write(root / f"sys/devices/system/node/node{node}/cpulist", listed)
        if self.quota is not None:
            write(root / "proc/self/cgroup", "0::/box")
            write(root / "sys/fs/cgroup/box/cpu.max", self.quota)
        for number, node in enumerate(self.gpu_nodes):
            address = f"0000:{number:02x}:00.0"
            write(root / f"proc/driver/nvidia/gpus/{address}/information", "GPU")
            write(root / f"sys/bus/pci/devices/{address}/numa_node", node)
        return root

    @property
    def threads(self) -> list[int]:
        return sorted(thread for threads in self.cores.values() for thread in threads)


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def sockets(count: int, cores: int, threads: int) -> dict[tuple[int, int, int], list[int]]:
    """Threads numbered as Linux does on Intel: first one of each core, then the others."""
    total = count * cores
    return {
        (socket, socket, core): [level * total + socket * cores + core for level in range(threads)]
        for socket in range(count)
        for core in range(cores)
    }


TWO_SOCKETS = Machine(sockets(2, 4, 2))
KNL = Machine(sockets(1, 64, 4))
ONE_CORE = Machine(sockets(1, 1, 1))
CONTAINER = Machine(sockets(1, 8, 1), quota="250000 100000")
