"""Python stacks of a job's processes, parsed from the output of faulthandler."""

import re
from collections.abc import Iterable, Sequence

from flambeau.observe import Event

_HEAD = re.compile(
    r"(Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])? \(most recent call first\):"
)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_ANNOUNCED = re.compile(r"the Python stacks of (?P<who>[\w ]+) follow")

#: The lines of a stack, innermost call first.
Stack = tuple[str, ...]


def announced(events: Iterable[Event]) -> list[str]:
    """Return the processes whose stacks will follow, such as `worker 0`."""
    texts = (str(event.fields["text"]) for event in events if event.kind == "warning")
    return [found["who"] for text in texts if (found := _ANNOUNCED.match(text))]


def stacks_by_process(events: Iterable[Event]) -> dict[str, list[tuple[bool, Stack]]]:
    """Return the stacks of each process: whether each is the main thread's, and its lines."""
    printed: dict[str, list[str]] = {}
    for event in events:
        if event.kind == "log":
            role = str(event.fields.get("role", "worker"))
            who = role if role == "evaluator" else f"{role} {event.fields['rank']}"
            printed.setdefault(who, []).extend(str(event.fields["text"]).splitlines())
    found = {who: _stacks(lines) for who, lines in printed.items()}
    return {who: stacks for who, stacks in found.items() if stacks}


def _stacks(lines: Sequence[str]) -> list[tuple[bool, Stack]]:
    found: list[tuple[bool, list[str]]] = []
    for line in lines:
        head = _HEAD.match(line)
        if head is not None:
            found.append((head[1] == "Current thread", []))
        elif found and _FRAME.match(line):
            found[-1][1].append(line.strip())
    return [(is_main, tuple(stack)) for is_main, stack in found if stack]


def grouped(
    stacks: dict[str, list[tuple[bool, Stack]]], *, all_threads: bool = False
) -> list[tuple[list[str], Stack]]:
    """Return each distinct stack with the processes that have it, the most frequent first.

    Without `all_threads`, only stacks of main threads, which receive signals, are included.
    """
    groups: dict[Stack, dict[str, int]] = {}
    for who, found in sorted(stacks.items(), key=lambda item: _natural(item[0])):
        for is_main, stack in found:
            if is_main or all_threads:
                own = groups.setdefault(stack, {})
                own[who] = own.get(who, 0) + 1
    named = [
        ([who if n == 1 else f"{who} ({n} threads)" for who, n in own.items()], stack)
        for stack, own in groups.items()
    ]
    return sorted(named, key=lambda group: -len(group[0]))


def _natural(who: str) -> tuple[str, int]:
    name, _, rank = who.partition(" ")
    return name, int(rank or 0)
