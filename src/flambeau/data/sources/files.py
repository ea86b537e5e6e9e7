"""Reading of files: local or at a URL, plain or compressed.

No connection is kept open: a remote file is read in ranges, each by a separate request, so that
sources can be sent to workers and a slow training does not occupy a server.
"""

import io
import os
from collections import deque
from collections.abc import Iterable
from typing import IO, Any, final

import pyarrow as pa

from flambeau.data.sources.urls import file_name, file_system, is_url, shown, transferring
from flambeau.errors import DataError

__all__ = [
    "compression_of",
    "first_bytes",
    "is_url",
    "open_lines",
    "open_random",
    "open_range",
    "open_stream",
    "read_bytes",
    "size_of",
    "unsplittable",
]

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
#: Bytes that are fetched at a time if a file is read sequentially.
_STREAMED = 8 << 20
#: Minimum bytes that are fetched at a time with random access, to save requests for small pieces.
_RANDOM = 1 << 20
#: Number of those pieces that are kept: the end of a Parquet file has its metadata.
_KEPT = 4
#: Bytes that are fetched at a time if only some lines are searched.
_LINES = 64 << 10
#: Size in bytes of a compressed text file above which it should be several files.
_LARGE = 256 << 20


def compression_of(path: str) -> str | None:
    """Return the compression of the file, by its name: "gzip", "zstd", or None."""
    return _COMPRESSIONS.get(os.path.splitext(file_name(path).lower())[1])


def size_of(path: str) -> int:
    """Return the number of bytes of the file, as it is stored."""
    if not is_url(path):
        return os.path.getsize(path)
    system, name = file_system(path)
    with transferring(path):
        size = system.info(name)["size"]
    if size is None:
        raise DataError(f"{shown(path)} cannot be read: its server does not report the size")
    return int(size)


def read_bytes(path: str, start: int, stop: int) -> pa.Buffer:
    """Return bytes `start` to `stop`: mapped from a local file, or fetched in one range."""
    if not is_url(path):
        return pa.memory_map(path).read_buffer().slice(start, stop - start)
    if stop <= start:
        return pa.py_buffer(b"")
    system, name = file_system(path)
    with transferring(path):
        data = system.cat_file(name, start=start, end=stop, **_as_stored(system))
    if len(data) != stop - start:
        raise DataError(
            f"{shown(path)} cannot be read: {len(data)} bytes came where {stop - start} were asked "
            f"for (from byte {start}): its server does not support range requests, or the file "
            "has changed"
        )
    return pa.py_buffer(data)


def first_bytes(path: str, count: int) -> bytes:
    """Return the first `count` bytes as they are stored; fewer of a smaller file."""
    if not is_url(path):
        with open(path, "rb") as file:
            return file.read(count)
    return RemoteFile(path, count).read(count)


def open_stream(path: str, start: int = 0) -> pa.NativeFile:
    """Return a stream of the decompressed content from byte `start`, using some megabytes."""
    compression = compression_of(path)
    if not is_url(path):
        stream = pa.input_stream(path, compression=compression)
    else:
        stream = pa.PythonFile(RemoteFile(path, _STREAMED), mode="r")
        if compression is not None:
            stream = pa.CompressedInputStream(stream, compression)
    # Compressed files can only be read from the beginning.
    while start > 0 and (skipped := stream.read(min(start, _STREAMED))):
        start -= len(skipped)
    return stream


def open_range(path: str, start: int, stop: int) -> pa.NativeFile:
    """Return bytes `start` to `stop` as a stream: of the mapped file, or fetched in pieces."""
    if not is_url(path):
        return pa.BufferReader(read_bytes(path, start, stop))
    return pa.PythonFile(RemoteFile(path, _STREAMED, start, stop), mode="r")


def open_lines(path: str) -> IO[bytes]:
    """Open the decompressed content for `readline`; `seek` works if it is not compressed."""
    if compression_of(path) is not None:
        return io.BufferedReader(open_stream(path), _LINES)
    return io.BufferedReader(RemoteFile(path, _LINES), _LINES) if is_url(path) else open(path, "rb")


def open_random(path: str) -> str | pa.NativeFile:
    """Return what pyarrow can read at any position: a local path, or a remote file."""
    if not is_url(path):
        return path
    return pa.PythonFile(RemoteFile(path, _RANDOM, kept=_KEPT), mode="r")


def unsplittable(paths: Iterable[str]) -> tuple[str, ...]:
    """Return a warning for each compressed text that is too large for one worker to decompress."""
    return tuple(
        f"{shown(path)} has {size >> 20:,} MB and is compressed, so it cannot be split: "
        "each worker decompresses it from its beginning. Write several smaller files, or Parquet"
        for path in paths
        if compression_of(path) is not None and (size := size_of(path)) > _LARGE
    )


@final
class RemoteFile(io.RawIOBase):
    """Bytes `start` to `stop` of a remote file, fetched in blocks of at least `block` bytes.

    The last `kept` blocks that are not larger than that stay in memory.
    """

    def __init__(
        self, url: str, block: int, start: int = 0, stop: int | None = None, *, kept: int = 1
    ) -> None:
        self._url, self._block, self._start = url, block, start
        self._stop = size_of(url) if stop is None else stop
        self._at = start
        self._blocks: deque[tuple[int, pa.Buffer]] = deque(maxlen=kept)

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
        """Return at most `size` bytes, fewer only at the end."""
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
        for first, data in self._blocks:
            if first <= self._at and stop <= first + data.size:
                return data.slice(self._at - first, stop - self._at)
        if stop - self._at >= self._block:
            return read_bytes(self._url, self._at, stop)
        end = min(self._at + self._block, self._stop)
        # With random access, files are read backwards from the end.
        again = self._block - (end - self._at) if self._blocks.maxlen != 1 else 0
        first = max(self._at - again, self._start)
        data = read_bytes(self._url, first, end)
        self._blocks.append((first, data))
        return data.slice(self._at - first, stop - self._at)


def _as_stored(system: Any) -> dict[str, Any]:
    """Return arguments that prevent a web server from compressing, which would disable ranges."""
    protocol = system.protocol
    if "http" not in ((protocol,) if isinstance(protocol, str) else protocol):
        return {}
    return {"headers": {**system.kwargs.get("headers", {}), "Accept-Encoding": "identity"}}
