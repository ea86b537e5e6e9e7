"""Settings that may change when a run resumes from its last checkpoint."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

#: Settings (including all nested ones) that may differ when a run is resumed: how long, where and
#: on how many processes it runs, and what is observed and kept. All others determine what is
#: learned from which data. Each process that calls `fit` stores arrays again, so their location is
#: ignored; their dtype and shape are compared.
CHANGEABLE = (
    "epochs",
    "max_steps",
    "cluster",
    "strategy.servers",
    "strategy.timeout",
    "strategy.encrypt",
    "observe",
    "recovery",
    "checkpoints",
    "evaluation",
    "evaluator",
    "metrics",
    "early_stopping",
    "loading.workers",
    "loading.read_ahead",
    "compute.device",
    "compute.compile",
    "callbacks",
    "valid",
    "train.fd",
    "train.file",
    "train.columns.*.fd",
    "train.columns.*.path",
    "train.columns.*.offset",
)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return `name: old -> new` for each setting that differs but must not."""
    before, after = dict(leaves(old)), dict(leaves(new))
    return [
        f"{name}: {_shown(before.get(name))} -> {_shown(after.get(name))}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name) and not _may_change(name)
    ]


def leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values; a setting that is None counts as not set."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _may_change(name: str) -> bool:
    return any(
        fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in CHANGEABLE
    )


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
