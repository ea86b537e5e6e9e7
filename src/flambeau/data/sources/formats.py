"""Detection of the format of files, from their names and first bytes."""

import os
import re
import warnings
from pathlib import Path

import pyarrow as pa

from flambeau.config.data import FILE_FORMATS
from flambeau.data.sources import arrow, image_folder, parquet
from flambeau.data.sources.files import first_bytes, is_url
from flambeau.data.sources.listing import files_at
from flambeau.data.sources.paths import Paths, find_files
from flambeau.data.sources.text import csv, dummy, libffm, libsvm
from flambeau.data.sources.urls import file_name, local_path, shown
from flambeau.errors import DataError

_SUFFIXES = {
    **dict.fromkeys(arrow.SUFFIXES, "arrow"),
    **dict.fromkeys(parquet.SUFFIXES, "parquet"),
    **{suffix: suffix.split(".")[1] for suffix in csv.SUFFIXES},
    **dict.fromkeys(dummy.SUFFIXES, "dummy"),
    **dict.fromkeys(libffm.SUFFIXES, "libffm"),
    **dict.fromkeys(libsvm.FROM_ZERO, "libfm"),
    **dict.fromkeys(libsvm.SUFFIXES, "libsvm"),
}
_NAMES = {
    r"(data_batch_.*|test_batch)\.bin": "cifar10",
    r"(train|test)\.bin": "cifar100",
    r"(train|test|extra)_32x32\.mat": "svhn",
    r".*idx\d-\w+(\.gz)?": "idx",
}
_MAGIC = {
    rb"PAR1": "parquet",
    arrow.FILE_MAGIC: "arrow",
    rb"\xff\xff\xff\xff": "arrow",
    rb"\x00\x00[\x08\x09\x0b-\x0e][\x01-\x08]": "idx",
}


_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
#: Number of bytes that contain at least the first block of a compressed file.
_LOOKED_AT = 256 << 10


def infer_format(path: Paths) -> str:
    """Return the format of the files meant by `path`; raise `DataError` if it is unknown."""
    found = find_format(path)
    if found is None:
        raise DataError(
            f"the format of {shown(_first(path))!r} is not known; give format= {_known()}"
        )
    return found


def find_format(path: Paths) -> str | None:
    """Return the format of the files meant by `path`, by names or first bytes; None if unknown."""
    first = _first(path)
    local = os.path.expanduser(local_path(first))
    if is_url(first):
        return _of_name(file_name(first)) or _of_url(first)
    if os.path.isdir(local):
        return _of_directory(Path(local))
    found = _of_name(os.path.basename(local))
    if found is not None:
        return found
    file = find_files(path)[0]
    return _of_name(os.path.basename(file)) or _of_bytes(file)


def is_self_describing(path: Paths) -> bool:
    """Return whether the first bytes of the files show their format, whatever their names."""
    with warnings.catch_warnings(action="ignore"):  # the files' reader warns of empty ones
        files = find_files(path, ("",), skip_empty=True)
    return _of_bytes(files[0]) is not None


def _first(path: Paths) -> str:
    return path if isinstance(path, str) else next(iter(path), "")


def _of_url(url: str) -> str | None:
    files = [file for file, _ in files_at(url, suffixes=("",))]
    names = (_of_name(file_name(file)) for file in files)
    return next((name for name in names if name is not None), None) or _of_bytes(files[0])


def _of_directory(directory: Path) -> str | None:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    formats = dict.fromkeys(name for file in files if (name := _of_name(file.name)) is not None)
    if formats:
        found, *others = formats
        if others:
            warnings.warn(
                f"{directory} holds files of several formats ({', '.join(formats)}), and is read "
                f"as {found}; give format=, or a pattern such as '*.{found}'",
                stacklevel=2,
            )
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
    start = first_bytes(path, _LOOKED_AT)
    for magic, compression in _PACKED.items():
        if start.startswith(magic):
            start = _unpacked(start, compression, path)
    return next((found for magic, found in _MAGIC.items() if re.match(magic, start)), None)


def _unpacked(start: bytes, compression: str, path: str) -> bytes:
    try:
        found: bytes = pa.CompressedInputStream(pa.BufferReader(start), compression).read(8)
        return found
    except OSError as error:
        raise DataError(f"{shown(path)} is a damaged {compression} file: {error}") from error


def _known() -> str:
    return f"one of {', '.join(FILE_FORMATS)}"
