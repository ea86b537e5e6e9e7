"""Which format files have, from their names and first bytes."""

import gzip
import os
import re
from pathlib import Path

from flambeau.config.data import FILE_FORMATS
from flambeau.data.sources import arrow, csv, image_folder, libffm, libsvm, parquet
from flambeau.data.sources.paths import Paths, find_files
from flambeau.errors import DataError

_PACKED = ("", ".gz", ".zst")
_SUFFIXES = {
    **dict.fromkeys(arrow.SUFFIXES, "arrow"),
    **dict.fromkeys(parquet.SUFFIXES, "parquet"),
    **{suffix: suffix.split(".")[1] for suffix in csv.SUFFIXES},
    **{suffix + packed: "libffm" for suffix in libffm.SUFFIXES for packed in _PACKED},
    **{suffix + packed: "libsvm" for suffix in libsvm.SUFFIXES for packed in _PACKED},
}
_NAMES = {
    r"(data_batch_.*|test_batch)\.bin": "cifar10",
    r"(train|test)\.bin": "cifar100",
    r".*idx\d-\w+(\.gz)?": "idx",
}
_MAGIC = {
    rb"PAR1": "parquet",
    arrow.FILE_MAGIC: "arrow",
    rb"\xff\xff\xff\xff": "arrow",
    rb"\x00\x00[\x08\x09\x0b-\x0e][\x01-\x08]": "idx",
}


def infer_format(path: Paths) -> str:
    """The format of the files meant by `path`."""
    first = path if isinstance(path, str) else next(iter(path), "")
    if os.path.isdir(first):
        found = _of_directory(Path(first))
    else:
        file = find_files(path)[0]
        found = _of_name(os.path.basename(file)) or _of_bytes(file)
    if found is None:
        raise DataError(f"the format of {first!r} is not known; give format= {_known()}")
    return found


def _of_directory(directory: Path) -> str | None:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    formats = (_of_name(file.name) for file in files)
    found = next((name for name in formats if name is not None), None)
    if found is not None:
        return found
    pictures = any(file.suffix.lower() in image_folder.SUFFIXES for file in files)
    return "images" if pictures else None


def _of_name(name: str) -> str | None:
    lower = name.lower()
    for suffix, found in _SUFFIXES.items():
        if lower.endswith(suffix):
            return found
    return next((found for known, found in _NAMES.items() if re.fullmatch(known, lower)), None)


def _of_bytes(path: str) -> str | None:
    with open(path, "rb") as file:
        start = file.read(8)
    if start.startswith(b"\x1f\x8b"):
        start = _unpacked_start(path)
    return next((found for magic, found in _MAGIC.items() if re.match(magic, start)), None)


def _unpacked_start(path: str) -> bytes:
    try:
        with gzip.open(path) as file:
            return file.read(8)
    except (EOFError, OSError) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}") from error


def _known() -> str:
    return f"one of {', '.join(FILE_FORMATS)}"
