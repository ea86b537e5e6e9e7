"""The instruction sets of this machine's processors that decide how fast training is."""

import platform
from dataclasses import dataclass
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
#: Names for people, and the kernel's names for them, on x86 and ARM.
_FLAGS = {
    "AVX2": {"avx2"},
    "AVX512": {"avx512f"},
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "AMX": {"amx_tile"},
    "NEON": {"asimd"},
    "SVE": {"sve"},
}
_X86 = ("AVX2", "AVX512", "bf16", "AMX")
_ARM = ("NEON", "SVE", "bf16")


@dataclass(frozen=True)
class CpuFeatures:
    """The model of a processor, the features that it has and those that it lacks."""

    model: str
    present: tuple[str, ...]
    absent: tuple[str, ...]


def read_features(path: Path = _CPU_INFO, machine: str | None = None) -> CpuFeatures | None:
    """Return what the kernel says of the first processor; None on systems without that file."""
    if not path.exists():
        return None
    lines = (line.partition(":") for line in path.read_text().split("\n\n")[0].splitlines())
    found = {name.strip(): value.strip() for name, _, value in lines}
    flags = set((found.get("flags") or found.get("Features") or "").split())
    kind = machine or platform.machine()
    wanted = _X86 if kind in ("x86_64", "AMD64", "i686") else _ARM
    present = tuple(name for name in wanted if _FLAGS[name] & flags)
    absent = tuple(name for name in wanted if name not in present)
    return CpuFeatures(found.get("model name") or kind, present, absent)
