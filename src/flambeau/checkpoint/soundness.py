"""Verification of the files of a checkpoint against its manifest, byte by byte."""

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flambeau.checkpoint.manifest import FileEntry, Manifest
from flambeau.errors import CheckpointError

_CHUNK = 1 << 24
_THREADS = 4

#: Function that is called regularly during long reads; an exception that it raises ends the
#: reading.
Pause = Callable[[], None]


def _no_pause() -> None:
    """Do nothing, so that files are read without interruption."""


def verify_checkpoint(path: Path, pause: Pause = _no_pause) -> None:
    """Read all files of a checkpoint, including those of others that hold rows of its tables.

    Raise `CheckpointError` naming the first file that is missing, unreadable or corrupt.
    """
    manifest = Manifest.read(path)
    expected = {path / name: entry for name, entry in manifest.files.items()}
    layers = [layer for table in manifest.tables.values() for layer in table.layers]
    for file in (path / name for layer in layers for name in layer):
        if file not in expected:
            expected[file] = _entry_of(file)
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "flambeau-verify") as threads:
        checks = [threads.submit(verify_file, *item, pause) for item in expected.items()]
        for check in checks:
            check.result()


def verify_file(path: Path, expected: FileEntry, pause: Pause = _no_pause) -> None:
    """Read a whole file; raise `CheckpointError` unless its size and checksum are as expected."""
    try:
        size = path.stat().st_size
        if size != expected.size:
            raise CheckpointError(f"{path} has {size} bytes instead of {expected.size}")
        if _checksum(path, pause) != expected.crc32:
            raise CheckpointError(f"{path} is corrupt: its checksum is wrong")
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def file_entry(path: Path) -> FileEntry:
    """Read a whole file; return its size and checksum."""
    try:
        return FileEntry(size=path.stat().st_size, crc32=_checksum(path, _no_pause))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _entry_of(file: Path) -> FileEntry:
    """Return the entry of a file in the manifest beside it."""
    entry = Manifest.read(file.parent).files.get(file.name)
    if entry is None:
        raise CheckpointError(f"{file} is not in the manifest beside it")
    return entry


def _checksum(path: Path, pause: Pause) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            pause()
            checksum = zlib.crc32(chunk, checksum)
    return checksum
