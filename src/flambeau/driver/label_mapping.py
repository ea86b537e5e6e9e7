"""The label map of a job: as given, from an earlier part of the run, or as its files need it."""

import re
from collections.abc import Mapping
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.user_code import Packer
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.config.data import shown_map
from flambeau.errors import UserError

_BINARY = ("bce", "bce_prob")
#: Names (without module) of loss classes whose labels are 0 and 1.
_BINARY_CLASSES = ("BCELoss", "BCEWithLogitsLoss", "ExportedLoss")
_BAGS = re.compile(r"\.(dummy|ffm|libffm|libfm|libsvm|svm)(\.gz|\.zst)?$", re.IGNORECASE)
_NO_SUFFIX = re.compile(r"(^|/)[^./]*/?$")


def with_label_map(
    run: RunDirectory, settings: JobSettings, packer: Packer
) -> tuple[JobSettings, str | None]:
    """Return settings with a label map, if they need one, and a message about one that is new.

    It is decided once, here, and is part of the run's settings: workers might each read different
    rows first, and a resumed run other rows than before.
    """
    if settings.binding.label_map:
        return settings, None
    before = run.trained_with()
    if before is not None:
        known = before.get("binding", {}).get("label_map")
        return (_with(settings, known) if known else settings), None
    if not is_binary(settings.loss, packer):
        return settings, None
    found = recognised(settings.train, settings.binding.labels)
    return (_with(settings, found), report(found)) if found else (settings, None)


def recognised(data: Any, columns: tuple[str, ...]) -> dict[float, float]:
    """Return the label map that files of `data` need; empty unless they hold bags of ids."""
    if not isinstance(data, FileData) or not columns or not _may_be_bags(data):
        return {}
    from flambeau.data.sources.text.label_forms import (
        recognise,  # loads torch, which most jobs do not need here
    )

    try:
        return recognise(data, columns)
    except UserError:
        # Workers may see files that this process does not; they report errors in these files.
        return {}


def is_binary(loss: Any, packer: Packer) -> bool:
    """Return whether a loss's name or class shows that labels must be 0 and 1."""
    if isinstance(loss, Mapping):
        return all(is_binary(each, packer) for each in loss.values())
    if isinstance(loss, CodeRef):
        return re.split("[.:]", packer.type_of(loss))[-1] in _BINARY_CLASSES
    return loss in _BINARY


def report(mapping: Mapping[float, float]) -> str:
    """Return the message about a label map that was recognised."""
    old, new = (" and ".join(f"{each:g}" for each in part) for part in (mapping, mapping.values()))
    return f"the labels are {old}; they are learned as {new} ({shown_map(mapping)})"


def _may_be_bags(data: FileData) -> bool:
    if data.format is not None:
        return True
    paths = (data.path,) if isinstance(data.path, str) else data.path
    return any(_BAGS.search(path) or _NO_SUFFIX.search(path) for path in paths)


def _with(settings: JobSettings, mapping: Mapping[Any, Any]) -> JobSettings:
    numbers = {float(old): float(new) for old, new in mapping.items()}
    binding = settings.binding.model_copy(update={"label_map": numbers})
    return settings.model_copy(update={"binding": binding})
