"""The bytes of files: parts of plain ones, and streams of packed ones."""

import mmap
import os

import pyarrow as pa

_PACKED = {".gz": "gzip", ".zst": "zstd"}


def size_of(path: str) -> int:
    """How many bytes the file has, as it is stored."""
    return os.path.getsize(path)


def compression_of(path: str) -> str | None:
    """`"gzip"`, `"zstd"` or None (a plain file), by the name."""
    return _PACKED.get(os.path.splitext(path.lower())[1])


def read_bytes(path: str, start: int, stop: int) -> memoryview:
    """Bytes `start` to `stop` of a file, fewer at its end; mapped, not copied."""
    stop = min(stop, size_of(path))
    if start >= stop:
        return memoryview(b"")
    first = start - start % mmap.ALLOCATIONGRANULARITY
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), stop - first, access=mmap.ACCESS_READ, offset=first)
    return memoryview(mapped)[start - first :]


def open_stream(path: str) -> pa.NativeFile:
    """The file from its start, unpacked if its name says that it is packed."""
    return pa.input_stream(path, compression=compression_of(path))
