"""Hosts as horovodrun takes them: `-H host1:2,host2:2`, or a file of lines `host1 slots=2`."""

import re
import socket
from pathlib import Path

from flambeau.errors import ConfigError


def local_slots(hosts: str | None, hostfile: Path | None, needed: int = 0) -> int:
    """Return how many processes the hosts take, which are this machine; 0 if none are given."""
    if hosts is not None and hostfile is not None:
        raise ConfigError("give -H or --hostfile, not both")
    slots = _of_file(hostfile) if hostfile is not None else _of_words(hosts or "")
    own = {"localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()}
    elsewhere = sorted(set(slots) - own)
    if elsewhere:
        raise ConfigError(
            f"horovodrun starts processes on this machine, not on {', '.join(elsewhere)}. Start "
            "them with srun, mpirun or torchrun: mpirun -H host1:2,host2:2 flambeau run --alias "
            "horovod SCRIPT.py"
        )
    total = sum(slots.values())
    if total and total < needed:
        raise ConfigError(f"-np {needed}: the hosts have {total} slots; give them more")
    return total


def _of_words(text: str) -> dict[str, int]:
    found = {}
    for word in filter(None, text.split(",")):
        host, _, slots = word.partition(":")
        if slots and not slots.isdecimal():
            raise ConfigError(f"-H {text}: {word!r} is not HOST:SLOTS")
        found[host] = int(slots or 1)
    return found


def _of_file(path: Path) -> dict[str, int]:
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"--hostfile {path}: {error}") from None
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        match = re.fullmatch(r"(\S+?)(?::(\d+)|\s+slots\s*=\s*(\d+))?", text)
        if text and match is None:
            raise ConfigError(f"{path}, line {number}: {text!r} is not 'HOST slots=N'")
        if match is not None:
            found[match[1]] = int(match[2] or match[3] or 1)
    return found
