"""Whether the files of a checkpoint are what its manifest says, byte by byte."""

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flambeau.checkpoint.manifest import FileEntry, Manifest
from flambeau.errors import CheckpointError

_CHUNK = 1 << 24
_THREADS = 4

#: Called now and then, since it may take long; what it raises ends the reading.
Pause = Callable[[], None]


def _no_pause() -> None:
    """Read without interruption."""


def verify_checkpoint(path: Path, pause: Pause = _no_pause) -> None:
    """Read all files of a checkpoint, also those of others that hold rows of its tables.

    `CheckpointError` names the first that is not as it was written.
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
    """Read a whole file; `CheckpointError` unless it has the expected size and checksum."""
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
    """Read a whole file; its size and checksum."""
    try:
        return FileEntry(size=path.stat().st_size, crc32=_checksum(path, _no_pause))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _entry_of(file: Path) -> FileEntry:
    """What the manifest beside a file says of it."""
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
