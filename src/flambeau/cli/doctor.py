"""Checks of what this machine provides for jobs, and of what is missing."""

import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import final

from rich.console import Console
from rich.table import Table

from flambeau.clusters.attached.launchers import detected
from flambeau.clusters.control_groups import core_quota, memory_limits
from flambeau.config.plural import number_of
from flambeau.kernels.cores import usable_cores
from flambeau.kernels.cpu_features import read_features

_GIB = 1 << 30
ILLEGAL_INSTRUCTION = (
    "where a program ends with 'Illegal instruction', a package was compiled for a newer CPU: "
    "install it again on a node of this kind"
)


@final
@dataclass(frozen=True)
class Check:
    """Result of one check; `remedy` is what the user can do about a problem, if anything."""

    name: str
    ok: bool
    detail: str
    remedy: str | None = None


def report(timeout: float = 10.0) -> list[Check]:
    """Return the results of all checks of what the clusters of this version can use.

    Each external program has `timeout` seconds to respond.
    """
    here = [_python(), _torch(), _cpu(), _cores(), _memory(), _network(), _folder()]
    engines = [_package("pyspark", "Spark", "spark"), _java(timeout), _package("ray", "Ray", "ray")]
    return [*here, *engines, _launcher(), _ssh()]


def show(checks: list[Check], console: Console) -> None:
    """Print a table on a terminal; elsewhere one line per check, and one per remedy."""
    if console.is_terminal:
        console.print(_table(checks))
        return
    for check in checks:
        console.out(f"{_mark(check):<4}{check.name:<9}{check.detail}", highlight=False)
        if check.remedy is not None:
            console.out(f"{'':<13}-> {check.remedy}", highlight=False)


def _table(checks: list[Check]) -> Table:
    table = Table("", "what", "found", "to do")
    for check in checks:
        style = "green" if check.ok else "yellow"
        mark = f"[{style}]{_mark(check)}[/]"
        table.add_row(mark, check.name, _literal(check.detail), _literal(check.remedy or ""))
    return table


def _literal(text: str) -> str:
    # The brackets of a remedy such as 'flambeau[spark]' would be parsed as markup.
    return text.replace("[", "\\[")


def _mark(check: Check) -> str:
    return "ok" if check.ok else "no"


def _python() -> Check:
    version = platform.python_version_tuple()
    ok = (int(version[0]), int(version[1])) >= (3, 11)
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("Python", ok, detail, None if ok else "install Python 3.11 or newer")


def _torch() -> Check:
    version = _version("torch")
    if version is None:
        return Check("torch", False, "not installed", "pip install torch")
    ok = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (2, 6)
    threads = os.environ.get("OMP_NUM_THREADS") or f"{len(usable_cores())}"
    detail = f"{version}, {threads} threads a process unless the job says otherwise"
    return Check("torch", ok, detail, None if ok else "pip install 'torch>=2.6'")


def _package(package: str, engine: str, extra: str) -> Check:
    version = _version(package)
    if version is not None:
        return Check(package, True, version)
    detail = f"not installed; needed for {engine} only"
    return Check(package, False, detail, f"pip install 'flambeau[{extra}]'")


def _ssh() -> Check:
    program = shutil.which("ssh")
    if program is not None:
        return Check("ssh", True, program)
    detail = "not installed; needed for ssh hosts only"
    return Check("ssh", False, detail, "install it (apt-get install openssh-client)")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> Check:
    features = read_features()
    if features is None:
        return Check("CPU", True, platform.processor() or "unknown")
    detail = f"{features.model}: {', '.join(features.present) or 'no vector instructions'}"
    if features.absent:
        detail += f" (no {', '.join(features.absent)})"
    old = features.present == ()
    return Check("CPU", not old, detail, ILLEGAL_INSTRUCTION if old else None)


def _cores() -> Check:
    allowed, quota = len(usable_cores()), core_quota()
    detail = f"{allowed} of {os.cpu_count()}"
    if quota is None or quota >= allowed:
        return Check("cores", True, detail)
    remedy = (
        f"use at most {number_of(max(1, int(quota)), 'worker')}, or raise the container's CPU limit"
    )
    return Check("cores", False, f"{detail}, but a quota of {quota:g}", remedy)


def _memory() -> Check:
    found = dict(re.findall(r"^(\w+): +(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE))
    if "MemAvailable" not in found:
        return Check("memory", True, "unknown (no /proc/meminfo)")
    available = int(found["MemAvailable"]) * 1024
    limit = min([int(found["MemTotal"]) * 1024, *memory_limits()])
    ok = min(available, limit) >= _GIB
    detail = f"{available / _GIB:.1f} GiB available, limit {limit / _GIB:.1f} GiB"
    return Check("memory", ok, detail, None if ok else "end other programs, or raise the limit")


def _network() -> Check:
    names = [name for _, name in socket.if_nameindex()]
    route = re.search(r"^(\S+)\s+00000000\s", _read(Path("/proc/net/route")), re.MULTILINE)
    detail = ", ".join(names)
    if route is not None:
        detail += f"; default route by {route[1]} ({_outward_address()})"
    remedy = None if names else "bring up the loopback interface: ip link set lo up"
    return Check("network", bool(names), detail or "no interface", remedy)


def _outward_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # An address reserved for documentation; connecting a datagram socket sends nothing.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def _folder() -> Check:
    free = shutil.disk_usage(".").free
    try:
        with tempfile.TemporaryFile(dir="."):
            pass
    except OSError as error:
        detail = f"cannot write here: {error.strerror}"
        return Check("folder", False, detail, "change to a folder you own, or give run_dir=")
    ok = free >= _GIB
    remedy = None if ok else "make room, or give run_dir= on another disk"
    return Check("folder", ok, f"{free / _GIB:.1f} GiB free here, writable", remedy)


def _java(timeout: float) -> Check:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    origin = f"JAVA_HOME={home}" if home else f"{program}, JAVA_HOME not set"
    remedy = "apt-get install openjdk-17-jre-headless"
    if home and not os.access(f"{home}/bin/java", os.X_OK):
        return Check("Java", False, f"{origin} has no bin/java", f"unset JAVA_HOME, or {remedy}")
    if program is None:
        return Check("Java", False, "not installed; needed for Spark only", remedy)
    check = _ask("Java", [program, "-version"], timeout, remedy, lambda text: f"{text} ({origin})")
    major = re.search(r'"(\d+)', check.detail)
    if check.ok and major is not None and int(major[1]) < 17:
        return Check("Java", False, f"{check.detail}; Spark 4 needs 17", remedy)
    return check


def _launcher() -> Check:
    """Check which launcher has started this process, or which launchers are available."""
    found = detected()
    if found is not None:
        return Check("launcher", True, f"{found.launcher}: rank {found.rank} of {found.size}")
    commands = ("srun", "mpirun", "mpiexec", "torchrun", "flux", "jsrun", "aprun")
    there = [name for name in commands if shutil.which(name) is not None]
    remedy = None if there else "load a module of your machine, or use torchrun, which torch has"
    return Check("launcher", bool(there), ", ".join(there) or "none in PATH", remedy)


def _ask(
    name: str,
    command: list[str],
    timeout: float,
    remedy: str,
    say: Callable[[str], str] = str,
) -> Check:
    """Check that a program exists and responds; `say` makes the detail of its first line."""
    if shutil.which(command[0]) is None:
        return Check(
            name, False, f"no {command[0]} in PATH; needed for {name} clusters only", remedy
        )
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return Check(name, False, f"{command[0]} did not answer within {timeout:g} s", remedy)
    except OSError as error:
        return Check(name, False, f"{command[0]} cannot be run: {error.strerror}", remedy)
    first = _first_line(done.stdout + done.stderr)
    if done.returncode != 0:
        return Check(name, False, f"{command[0]} failed ({done.returncode}): {first}", remedy)
    return Check(name, True, say(first))


def _first_line(output: str) -> str:
    # Java first prints the options that it takes from the environment.
    lines = [line for line in output.splitlines() if line and not line.startswith("Picked up ")]
    return lines[0] if lines else "(no output)"


def _read(path: Path) -> str:
    """Return the text of a kernel file, or an empty string if this kernel has no such file."""
    return path.read_text().strip() if path.is_file() else ""
