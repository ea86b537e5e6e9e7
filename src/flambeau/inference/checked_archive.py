"""Conversion of an untrusted torch.export file to one that contains only data.

`torch.export.load` unpickles some entries of the archive and runs parts of others. Therefore torch
loads a copy in memory, made of the entries that were checked. So it does not matter if another
reader of zip files finds other entries in the original than this one.
"""

import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from flambeau.errors import DataError, UntrustedError
from flambeau.inference.checked_program import checked_program, require_plain

_PROGRAM = "models/model.json"
_SAMPLE_INPUTS = "data/sample_inputs/model.pt"
_CONFIGS = {
    "data/weights/": "data/weights/model_weights_config.json",
    "data/constants/": "data/constants/model_constants_config.json",
}
#: Entries that describe the archive, and their required content.
_FIXED = {
    "archive_format": rb"pt2",
    "archive_version": rb"\d{1,4}",
    "byteorder": rb"little",
    ".data/version": rb"\d{1,4}\n?",
}
_NOT_NEEDED = {".data/serialization_id", _SAMPLE_INPUTS}
_TENSORS = re.compile(r"data/weights/weight_\d+|data/constants/tensor_\d+")


def checked_archive(path: Path) -> io.BytesIO:
    """Return the archive without anything that torch would unpickle or run.

    Raise `UntrustedError` if it has content that Flambeau does not write, since that may be code.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _entries(archive)
    except (OSError, zipfile.BadZipFile, NotImplementedError, zlib.error, EOFError) as error:
        raise DataError(f"{path} is damaged, or not a file of torch.export: {error}") from error
    except UntrustedError as error:
        raise _explained(path, error) from error
    try:
        return _copy(entries)
    except UntrustedError as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: UntrustedError) -> UntrustedError:
    return UntrustedError(
        f"{path} is not loaded: {error}. If you trust the author of this export, load it with "
        "trust=True: its code then runs with your rights"
    )


def _entries(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the content of all entries by name, without the folder that contains all of them."""
    found: dict[str, bytes] = {}
    roots = set()
    for info in archive.infolist():
        root, _, name = info.filename.partition("/")
        roots.add(root)
        known = name in _FIXED or name in _NOT_NEEDED or name == _PROGRAM
        known = known or name in _CONFIGS.values() or bool(_TENSORS.fullmatch(name))
        if not known or name in found or len(roots) > 1:
            raise UntrustedError(f"Flambeau does not write its entry {info.filename[:80]!r}")
        # Uncompressed entries are as long as in the file, so they cannot exhaust the memory.
        if info.compress_type != zipfile.ZIP_STORED:
            raise UntrustedError(f"its entry {info.filename!r} is compressed")
        found[name] = b"" if name in _NOT_NEEDED else archive.read(info)
    return found


def _copy(entries: dict[str, bytes]) -> io.BytesIO:
    for name in (_PROGRAM, *_CONFIGS.values(), *_FIXED):
        if name not in entries:
            raise UntrustedError(f"it has no entry {name!r}")
    for name, pattern in _FIXED.items():
        if not re.fullmatch(pattern, entries[name]):
            raise UntrustedError(f"its entry {name!r} has another content than ours")
    for folder, config in _CONFIGS.items():
        _require_tensors(folder, entries[config], entries)
    kept = {**entries, _PROGRAM: checked_program(entries[_PROGRAM]), _SAMPLE_INPUTS: b""}
    kept.pop(".data/serialization_id", None)
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
        for name, content in kept.items():
            archive.writestr(f"model/{name}", content)
    copy.seek(0)
    return copy


def _require_tensors(folder: str, text: bytes, entries: dict[str, bytes]) -> None:
    """Check that a config lists only plain tensors, whose numbers are in entries."""
    try:
        config = json.loads(text)
        require_plain(config)
        for payload in config["config"].values():
            content = entries.get(folder + payload["path_name"])
            plain = content is not None and not payload["use_pickle"]
            if not plain or not _fits(payload["tensor_meta"], len(content or b"")):
                raise UntrustedError(f"{folder}{payload['path_name']} is not a plain tensor")
    except UntrustedError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UntrustedError(f"the list of {folder} is not as torch.export writes it") from error


def _fits(meta: dict[str, Any], size: int) -> bool:
    """Return whether a tensor has data or no elements; torch would invent zeros without data."""
    return size > 0 or any(each["as_int"] == 0 for each in meta["sizes"])
