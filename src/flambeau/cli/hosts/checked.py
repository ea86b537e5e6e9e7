"""Output of `flambeau hosts check`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.config.plural import number_of

if TYPE_CHECKING:
    from flambeau.clusters.ssh.check import Checked

_COLUMNS = (
    "host",
    "latency",
    "cores",
    "memory",
    "GPU",
    "Python",
    "torch",
    "Flambeau",
    "free disk",
)
_GIB = 1 << 30


def table(checked: Sequence["Checked"]) -> str:
    """Return a table of all hosts, with the problems to fix below it."""
    rows = [_COLUMNS, *map(_row, checked)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *_to_fix(checked)])


def as_objects(checked: Sequence["Checked"]) -> list[dict[str, Any]]:
    """Return the same information as objects for JSON; sizes are in bytes."""
    import msgspec

    return [
        {
            "host": each.host,
            "reachable": each.description is not None,
            "latency_ms": None if each.latency is None else round(1000 * each.latency, 3),
            "description": None
            if each.description is None
            else msgspec.to_builtins(each.description),
            "problems": [
                {
                    "kind": problem.kind.name.lower(),
                    "text": problem.text,
                    "command": problem.command,
                    "advice": problem.advice,
                }
                for problem in each.problems
            ],
        }
        for each in checked
    ]


def _row(checked: "Checked") -> tuple[str, ...]:
    found = checked.description
    if found is None:
        return (checked.host, "not reachable", *("-",) * (len(_COLUMNS) - 2))
    return (
        checked.host,
        "-" if checked.latency is None else f"{1000 * checked.latency:.2f} ms",
        str(found.cores),
        "-" if found.memory is None else _gigabytes(found.memory),
        _gpus(found.gpus),
        found.python,
        found.torch or "none",
        found.flambeau or "none",
        f"{_gigabytes(found.free)} at {found.place}",
    )


def _gigabytes(count: int) -> str:
    return f"{count / _GIB:.1f} GB"


def _gpus(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"


def _to_fix(checked: Sequence["Checked"]) -> list[str]:
    problems = [problem for each in checked for problem in each.problems]
    if not problems:
        return [f"{number_of(len(checked), 'host')} can take part in a job of this machine."]
    hosts = sum(1 for each in checked if each.problems)
    title = (
        f"{hosts} of {number_of(len(checked), 'host')} cannot take part in a job of this machine:"
    )
    return ["", title, *(f"  {problem}" for problem in problems)]
