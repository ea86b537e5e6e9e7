"""Hosts in a file or a list, in the formats of MPI and DeepSpeed or as plain addresses."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flambeau.errors import ConfigError

_FORM = "write one host per line, such as node1, user@10.0.0.4 or node1 slots=4"
_NOTE = re.compile(r"\([^()]*\)")
#: An address in brackets or a name without colons, followed by `:slots`.
_COUNTED = re.compile(r"(?P<name>(?:[^@\s]+@)?(?:\[[^\[\]\s]+\]|[^:\[\]\s]+)):(?P<slots>[^:\s]*)")
_BRACKETS = re.compile(r"(?P<user>(?:[^@\s]+@)?)\[(?P<address>[^\[\]\s]+)\]")
#: Valid host names. They cannot begin with "-", so ssh never takes one for an option.
_NAME = re.compile(r"(?!-)[\w.%:+@-]+")
_SLOTS = ("slots", "slot", "cpus", "cpu", "count")
#: MPI's limit on oversubscription, which Flambeau does not have.
_IGNORED = ("max_slots", "max-slots", "slots_max", "slots-max")


@dataclass(frozen=True)
class Host:
    """A host that ssh can reach: `name` may be an alias, an address or `user@host`.

    `slots` is the number of workers that it has room for, or None if it is not given. `line` is its
    line number in the file or list.
    """

    name: str
    slots: int | None = None
    line: int = 0


def read_hosts(source: str | Path | Sequence[str]) -> tuple[Host, ...]:
    """Return the hosts in a file (a path) or a list of lines; the first one is the master.

    As in MPI, the slots of lines with the same host are added; a line without slots counts as one.
    """
    if isinstance(source, str | Path):
        where, lines = str(source), _lines_of(Path(source))
    else:
        where, lines = "hosts", list(source)
    found: dict[str, Host] = {}
    for host in _parsed(lines, where):
        before = found.get(host.name)
        found[host.name] = host if before is None else _added(before, host)
    if not found:
        raise ConfigError(f"{where}: no hosts are in it; {_FORM}")
    return tuple(found.values())


def _lines_of(path: Path) -> list[str]:
    try:
        return path.expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(
            f"cannot read the host file {path}: {reason}. Give the path of a file with one host "
            "per line, or a list of hosts"
        ) from None


def _parsed(lines: Iterable[str], where: str) -> Iterable[Host]:
    for number, line in enumerate(lines, start=1):
        words = _NOTE.sub(" ", line.partition("#")[0]).split()
        if not words:
            continue
        try:
            yield _host_of(words, number)
        except ValueError as error:
            raise ConfigError(f"{where}, line {number}: {line.strip()!r}: {error}") from None


def _host_of(words: Sequence[str], line: int) -> Host:
    first, *rest = words
    counted = _COUNTED.fullmatch(first)
    name = counted["name"] if counted else first
    slots = _slots(counted["slots"]) if counted else None
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in (*_SLOTS, *_IGNORED):
            raise ValueError(f"{word!r} is not understood; {_FORM}")
        if key.lower() in _SLOTS:
            if slots is not None:
                raise ValueError("the number of slots is given twice")
            slots = _slots(value)
    return Host(_name_of(name), slots, line)


def _name_of(text: str) -> str:
    bracketed = _BRACKETS.fullmatch(text)
    name = f"{bracketed['user']}{bracketed['address']}" if bracketed else text
    if not _NAME.fullmatch(name) or name.startswith("@") or name.endswith("@"):
        raise ValueError(f"{text!r} is not the name or address of a host; {_FORM}")
    return name


def _slots(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"{text!r} is not a number of slots (a whole number from 1; a port of ssh belongs into "
            "~/.ssh/config)"
        )
    return int(text)


def _added(before: Host, again: Host) -> Host:
    return replace(before, slots=(before.slots or 1) + (again.slots or 1))
