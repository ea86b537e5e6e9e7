"""The bytes of files: local or at a URL, plain or compressed.

Nothing here keeps a connection open: a remote file is read in ranges, each by a request of its own,
so that sources can be sent to workers and a slow training does not hold a server.
"""

import io
import os
from typing import Any, final

import pyarrow as pa

from flambeau.data.sources.urls import file_name, file_system, is_url, shown, transferring
from flambeau.errors import DataError

__all__ = [
    "compression_of",
    "is_url",
    "open_random",
    "open_range",
    "open_stream",
    "read_bytes",
    "size_of",
]

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
#: Bytes that are fetched at once where a file is read from front to back.
_STREAMED = 8 << 20
#: Bytes that are fetched at least where it is read here and there: saves requests for small pieces.
_RANDOM = 1 << 20


def compression_of(path: str) -> str | None:
    """How the file is compressed, by its name: "gzip", "zstd", or None."""
    return _COMPRESSIONS.get(os.path.splitext(file_name(path).lower())[1])


def size_of(path: str) -> int:
    """How many bytes the file has, as it is stored."""
    if not is_url(path):
        return os.path.getsize(path)
    system, name = file_system(path)
    with transferring(path):
        size = system.info(name)["size"]
    if size is None:
        raise DataError(f"{shown(path)} cannot be read: its server does not say how large it is")
    return int(size)


def read_bytes(path: str, start: int, stop: int) -> pa.Buffer:
    """Bytes `start` to `stop`: mapped from a local file without a copy, or fetched in one range."""
    if not is_url(path):
        return pa.memory_map(path).read_buffer().slice(start, stop - start)
    if stop <= start:
        return pa.py_buffer(b"")
    system, name = file_system(path)
    with transferring(path):
        data = system.cat_file(name, start, stop, **_as_stored(system))
    if len(data) != stop - start:
        raise DataError(
            f"{shown(path)} cannot be read: {len(data)} bytes came where {stop - start} were asked "
            f"for (from byte {start}): its server knows no ranges, or the file has changed"
        )
    return pa.py_buffer(data)


def open_stream(path: str) -> pa.NativeFile:
    """The content from front to back, decompressed, at most some megabytes of it in memory."""
    compression = compression_of(path)
    if not is_url(path):
        return pa.input_stream(path, compression=compression)
    stream = pa.PythonFile(RemoteFile(path, _STREAMED), mode="r")
    return stream if compression is None else pa.CompressedInputStream(stream, compression)


def open_range(path: str, start: int, stop: int) -> pa.NativeFile:
    """Bytes `start` to `stop` as a stream: of the mapped file, or fetched piece by piece."""
    if not is_url(path):
        return pa.BufferReader(read_bytes(path, start, stop))
    return pa.PythonFile(RemoteFile(path, _STREAMED, start, stop), mode="r")


def open_random(path: str) -> str | pa.NativeFile:
    """What pyarrow reads at any place: the path of a local file, or a file of ranges."""
    if not is_url(path):
        return path
    return pa.PythonFile(RemoteFile(path, _RANDOM), mode="r")


@final
class RemoteFile(io.RawIOBase):
    """Bytes `start` to `stop` of a remote file, fetched in ranges of at least `block` bytes."""

    def __init__(self, url: str, block: int, start: int = 0, stop: int | None = None) -> None:
        self._url, self._block, self._start = url, block, start
        self._stop = size_of(url) if stop is None else stop
        self._at = start
        self._fetched_at = start
        self._fetched: pa.Buffer = pa.py_buffer(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: self._start, io.SEEK_CUR: self._at, io.SEEK_END: self._stop}[whence]
        self._at = max(self._start, base + offset)
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, fewer only at the end."""
        stop = self._stop if size < 0 else min(self._at + size, self._stop)
        data = bytes(self._view(stop))
        self._at += len(data)
        return data

    def readinto(self, target: Any) -> int:
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)

    def _view(self, stop: int) -> pa.Buffer:
        if stop <= self._at:
            return pa.py_buffer(b"")
        if not self._fetched_at <= self._at <= stop <= self._fetched_at + self._fetched.size:
            end = min(max(stop, self._at + self._block), self._stop)
            self._fetched = read_bytes(self._url, self._at, end)
            self._fetched_at = self._at
        return self._fetched.slice(self._at - self._fetched_at, stop - self._at)


def _as_stored(system: Any) -> dict[str, Any]:
    """Arguments that keep a web server from compressing its answer, which would have no ranges."""
    if "http" not in system.protocol:
        return {}
    return {"headers": {**system.kwargs.get("headers", {}), "Accept-Encoding": "identity"}}
