"""Criteo's logs in a folder, and their split into rows to train, validate and test with.

`kaggle` is one file, `train.txt`, whose rows are ordered by time: the first 6/7 are for training,
half of the rest for validation and half for testing. `small` and `full` have one file per day: some
days for training, and another one whose first half is for validation, the second for testing.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

from flambeau.config import FileData
from flambeau.config.plural import number_of
from flambeau.data.data_kinds import files
from flambeau.data.sources.paths import find_files, named_files, require_content
from flambeau.data.sources.urls import file_name, shown
from flambeau.errors import ConfigError, DataError
from flambeau.features.splits import ByFile, Split, by_ratio

_DAY = re.compile(r"day_(\d+)(?:\.\w+)*")
_TRAIN, _UNLABELLED = re.compile(r"train(?:\.\w+)*"), re.compile(r"test(?:\.\w+)*")


class Mode(StrEnum):
    """Splits of the rows."""

    KAGGLE = "kaggle"
    SMALL = "small"
    FULL = "full"


_ANY = ("",)

#: Days to train on, and the day to validate and test with, as is usual for Criteo's terabyte logs.
DAYS = {Mode.SMALL: ("0-3", 23), Mode.FULL: ("0-22", 23)}
#: Bounds of the subsets of `kaggle`.
_VALID, _TEST = 12 / 14, 13 / 14


@final
@dataclass(frozen=True)
class Logs:
    """Raw logs: all rows with their split, and each subset; `unlabelled` are rows to predict."""

    all: FileData
    split: Split
    train: FileData
    valid: FileData
    test: FileData
    unlabelled: FileData | None = None


def find_logs(
    raw: str,
    mode: Mode,
    *,
    train_days: str | None = None,
    test_day: int | None = None,
    options: dict[str, Any] | None = None,
) -> Logs:
    """Return the logs in `raw`, a folder or a file; `options` are those of the format `criteo`."""
    given = options or {}
    if mode is Mode.KAGGLE:
        if train_days is not None or test_day is not None:
            raise ConfigError("--train-days and --test-day are for --mode small and full")
        return _kaggle(raw, given)
    days, last = DAYS[mode]
    last = last if test_day is None else test_day
    return _days(raw, parse_days(train_days or days), last, given)


def parse_days(text: str) -> list[int]:
    """Return the days of a text such as `0-3` or `0,1,5`."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise ConfigError(f"--train-days {text!r}: give days such as 0-3 or 0,1,5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(f"--train-days {text!r}: {first}-{last} ends before it begins")
        found += range(first, last + 1)
    return sorted(set(found))


def _kaggle(raw: str, options: dict[str, Any]) -> Logs:
    names = _found(raw, options)
    labelled = [name for name in names if _TRAIN.fullmatch(file_name(name))]
    labelled = labelled or (names if len(names) == 1 else [])
    if len(labelled) != 1:
        raise DataError(
            f"{shown(raw)}: --mode kaggle takes one file of rows with labels, such as train.txt; "
            f"found {_listed(labelled or names)}"
        )
    rest = [name for name in names if _UNLABELLED.fullmatch(file_name(name))]
    path = labelled[0]
    shares = ((0, _VALID), (_VALID, _TEST), (_TEST, 1))
    train, valid, test = (files(path, "criteo", share=share, **options) for share in shares)
    split = by_ratio(valid=_TEST - _VALID, test=1 - _TEST, shuffle=False)
    # Files without labels have no label column.
    without = files(rest, "criteo", **{**options, "labels": []}) if rest else None
    return Logs(files(path, "criteo", **options), split, train, valid, test, without)


def _days(raw: str, wanted: Sequence[int], last: int, options: dict[str, Any]) -> Logs:
    if last in wanted:
        raise ConfigError(f"day {last} cannot be both to train on and to test with")
    found: dict[int, str] = {}
    for name in _found(raw, options):
        match = _DAY.fullmatch(file_name(name))
        if match is None:
            continue
        if int(match[1]) in found:
            both = f"{shown(found[int(match[1])])} and {shown(name)}"
            raise DataError(f"day {match[1]} is there twice, as {both}: leave one")
        found[int(match[1])] = name
    for number in (*wanted, last):
        if number in found:
            require_content(found[number])
    if last not in found:
        raise DataError(
            f"{shown(raw)} has no file for day {last} to test with (day_{last}, day_{last}.gz, "
            f"...); it has {_numbers(found)}: name another one with --test-day"
        )
    _check_missing(raw, [day for day in wanted if day not in found], options)
    days = [day for day in wanted if day in found]
    if not days:
        raise DataError(f"{shown(raw)} has none of the days to train on; it has {_numbers(found)}")
    paths, day = [found[each] for each in days], found[last]
    test = file_name(day)
    return Logs(
        files([*paths, day], "criteo", **options),
        ByFile(train=tuple(map(file_name, paths)), valid=test, test=test),
        files(paths, "criteo", **options),
        files(day, "criteo", share=(0, 0.5), **options),
        files(day, "criteo", share=(0.5, 1), **options),
    )


def _found(raw: str, options: dict[str, Any]) -> list[str]:
    """Return all files; empty ones are left out if bad rows are, else an error where needed."""
    if options.get("on_bad_row") == "skip":
        return find_files(raw, _ANY, skip_empty=True)
    return [name for name, _ in named_files(raw, _ANY)]


def _check_missing(raw: str, missing: Sequence[int], options: dict[str, Any]) -> None:
    """Raise an error if days are missing, or only warn if bad rows are skipped."""
    if not missing:
        return
    text = f"{shown(raw)} has no file for {_numbers(missing)}"
    if options.get("on_bad_row") == "skip":
        warnings.warn(f"{text}; training continues without it", stacklevel=2)
    else:
        raise DataError(f"{text}; name those to train on with --train-days, or --on-bad-row skip")


def _numbers(days: Any) -> str:
    found = sorted(days)
    if not found:
        return "no day"
    shown_days = ", ".join(map(str, found[:30]))
    return f"{'day' if len(found) == 1 else 'days'} {shown_days}"


def _listed(names: Sequence[str]) -> str:
    first = ", ".join(file_name(name) for name in names[:5])
    return f"{number_of(len(names), 'file')}: {first}" if names else "none"
