"""The script that describes a host: it runs there, with any Python from 3.6 on.

It imports the standard library only, and is sent as text. Its first line of input is a `Question`
(`probe.py`); its first line of output that begins with MARK is the description. All further lines
are echoed at once, to measure the round-trip time.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys

MARK = "flambeau-host "
#: How long nvidia-smi, or another program, may take to reply.
GPU_SECONDS = 20


def main() -> None:
    """Describe this host, then echo lines until the input ends."""
    # No modules are imported from the folder in which a login starts.
    sys.path[:] = [folder for folder in sys.path if folder]
    question = json.loads(sys.stdin.readline())
    found = describe(question["folder"], question["markers"], question["base"])
    sys.stdout.write(MARK + json.dumps(found) + "\n")
    sys.stdout.flush()
    for line in iter(sys.stdin.readline, ""):
        sys.stdout.write(line)
        sys.stdout.flush()


def describe(folder: str, markers: "list[str]", base: str) -> "dict[str, object]":
    """Return the description of this host; `folder` is where disk space is needed."""
    place = _nearest(folder)
    memory = _memory()
    return {
        "host": platform.node(),
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": _version("torch"),
        "flambeau": _version("flambeau"),
        "cores": _cores(),
        "memory": memory.get("MemTotal"),
        "memory_free": memory.get("MemAvailable"),
        "gpus": _gpus(),
        "place": place,
        "there": os.path.isdir(os.path.expanduser(folder)),
        "free": shutil.disk_usage(place).free,
        "writable": os.access(place, os.W_OK),
        "marked": [os.path.exists(os.path.expanduser(marker)) for marker in markers],
        "base": _python_version(base),
        "rsync": shutil.which("rsync") is not None,
        "tar": shutil.which("tar") is not None,
    }


def _nearest(folder: str) -> str:
    """Return the folder, or its nearest parent that exists."""
    place = os.path.abspath(os.path.expanduser(folder))
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return place


def _version(package: str) -> "str | None":
    """Return the version of a package from its version.py, without importing it."""
    found = importlib.util.find_spec(package)
    for folder in (found and found.submodule_search_locations) or []:
        path = os.path.join(folder, "version.py")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            match = re.search(r"^__version__\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
            if match is not None:
                return match.group(1)
    return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> "dict[str, int]":
    """Return the sizes in /proc/meminfo, in bytes, by name."""
    if os.path.isfile("/proc/meminfo"):
        with open("/proc/meminfo") as file:
            found = re.findall(r"^(\w+): +(\d+) kB", file.read(), re.MULTILINE)
        return {name: int(count) * 1024 for name, count in found}
    if "SC_PHYS_PAGES" in os.sysconf_names:
        return {"MemTotal": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}
    return {}


def _gpus() -> "list[str]":
    """Return the names of NVIDIA GPUs, with their memory."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    return _output_of(query).splitlines() if shutil.which(query[0]) else []


def _python_version(program: str) -> "str | None":
    """Return the version of another Python, if it exists and runs."""
    if not (program and os.access(program, os.X_OK)):
        return None
    return _output_of([program, "-c", "import platform; print(platform.python_version())"]) or None


def _output_of(command: "list[str]") -> str:
    """Return the output of a program; empty if it fails."""
    try:
        output = subprocess.check_output(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=GPU_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return output.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    main()
