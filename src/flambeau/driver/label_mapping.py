"""The label map of a job: as it was given, as the run had it, or as its files need it."""

import re
from collections.abc import Mapping
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.user_code import Packer
from flambeau.config import CodeRef, FileData, JobSettings
from flambeau.config.data import shown_map
from flambeau.errors import UserError

_BINARY = ("bce", "bce_prob")
#: Classes of losses, by their last name, whose labels are 0 and 1.
_BINARY_CLASSES = ("BCELoss", "BCEWithLogitsLoss", "ExportedLoss")
_BAGS = re.compile(r"\.(dummy|ffm|libffm|libfm|libsvm|svm)(\.gz|\.zst)?$", re.IGNORECASE)
_NO_SUFFIX = re.compile(r"(^|/)[^./]*/?$")


def with_label_map(
    run: RunDirectory, settings: JobSettings, packer: Packer
) -> tuple[JobSettings, str | None]:
    """The settings with a label map, if they need one, and what to report of one that is new.

    Workers that each decided for themselves might read other rows first, and a resumed run others
    than before: so it is decided once, here, and is part of the run's settings.
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
    """The label map that the files of `data` need; nothing for what is no file of bags of ids."""
    if not isinstance(data, FileData) or not columns or not _may_be_bags(data):
        return {}
    from flambeau.data.sources.text.label_forms import (
        recognise,  # loads torch, which most jobs need not
    )

    try:
        return recognise(data, columns)
    except UserError:
        # Workers may see files that this process does not; what is wrong with them they report.
        return {}


def is_binary(loss: Any, packer: Packer) -> bool:
    """Whether labels must be 0 and 1, as far as a loss's name or class says so."""
    if isinstance(loss, Mapping):
        return all(is_binary(each, packer) for each in loss.values())
    if isinstance(loss, CodeRef):
        return re.split("[.:]", packer.type_of(loss))[-1] in _BINARY_CLASSES
    return loss in _BINARY


def report(mapping: Mapping[float, float]) -> str:
    """What the user is told of a map that was recognised."""
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
